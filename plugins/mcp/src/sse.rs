//! Server-sent events, as the HTML standard reads them: the `data` of each event, whatever pieces the bytes come in.

/// Reads a stream piece by piece.
#[derive(Default)]
pub(crate) struct Events {
    /// Bytes of a line that has not ended yet.
    line: Vec<u8>,
    /// How much of `line` has been searched for its end, so that a line of megabytes is searched once.
    searched: usize,
    /// Whether the line before ended with a carriage return, whose line feed would be the same end.
    after_return: bool,
    data: Vec<u8>,
    has_begun: bool,
}

impl Events {
    /// Takes the next bytes, and hands the data of every event that is complete with them to `each`.
    pub(crate) fn push(&mut self, bytes: &[u8], mut each: impl FnMut(Vec<u8>)) {
        self.line.extend_from_slice(bytes);
        let mut start = 0;
        loop {
            if self.after_return && self.line.get(start) == Some(&b'\n') {
                start += 1;
            }
            let from = self.searched.max(start);
            let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
            let Some(length) = self.line[from..].iter().position(is_end) else {
                break;
            };
            let end = from + length;
            self.after_return = self.line[end] == b'\r';
            let line = std::mem::take(&mut self.line);
            self.end_of_line(&line[start..end], &mut each);
            self.line = line;
            start = end + 1;
            self.searched = start;
        }
        // A carriage return at the very end may still be half of a line end.
        if start < self.line.len() {
            self.after_return = false;
        }
        self.line.drain(..start);
        self.searched = self.line.len();
        // The room of a line of megabytes is wanted for what becomes of it.
        if self.line.is_empty() {
            self.line = Vec::new();
        }
    }

    fn end_of_line(&mut self, line: &[u8], each: &mut impl FnMut(Vec<u8>)) {
        let line = match self.has_begun {
            true => line,
            false => line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line),
        };
        self.has_begun = true;
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            // An event without data primes a stream that can be resumed; it says nothing.
            if !data.is_empty() {
                each(data);
            }
            return;
        }
        // Names of events, their ids and comments say nothing that a single answer needs.
        let Some(value) = line.strip_prefix(b"data").and_then(|rest| match rest {
            [] => Some(rest),
            [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
            _ => None,
        }) else {
            return;
        };
        if !self.data.is_empty() {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
        let mut events = Events::default();
        let mut found = Vec::new();
        for piece in pieces {
            events.push(piece, |data| found.push(String::from_utf8(data).unwrap()));
        }
        found
    }

    const STREAM: &[u8] =
        b"\xef\xbb\xbf: hello\nid: 1\ndata: \n\nevent: message\r\nid: 2\r\ndata: {\"a\":1}\r\n\r\n\
        data:one\rdata: two\rdatum: no\r\rdata\n\nretry: 5\n\ndata: not ended\n";

    #[test]
    fn events_are_read_whatever_ends_their_lines() {
        assert_eq!(read([STREAM]), ["{\"a\":1}", "one\ntwo"]);
    }

    #[test]
    fn events_are_the_same_wherever_the_pieces_are_cut() {
        for cut in 0..STREAM.len() {
            let (head, tail) = STREAM.split_at(cut);
            assert_eq!(
                read([head, tail]),
                ["{\"a\":1}", "one\ntwo"],
                "cut at {cut}"
            );
        }
        assert_eq!(read(STREAM.chunks(1)), ["{\"a\":1}", "one\ntwo"]);
    }

    #[test]
    fn a_stream_that_ends_inside_an_event_has_not_said_it() {
        assert!(read([b"data: {\"a\":1}\n".as_slice()]).is_empty());
    }
}
