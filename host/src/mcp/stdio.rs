//! Standard input and output as an MCP transport: one JSON-RPC message a line.
//!
//! rmcp has one too, which answers a line that is not JSON, or is too long, with nothing, so that a client that sent it
//! waits forever.

use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use rmcp::ErrorData as McpError;
use rmcp::model::{ErrorCode, RequestId};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader,
};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;

use crate::shape::excerpt;

/// The longest line that is read: what the HTTP doors take as a body.
const MAX_LINE_BYTES: usize = 4 << 20;

/// Lines in, lines out.
#[derive(Debug)]
pub(super) struct Lines<W> {
    /// Messages that were read. Reading has a task of its own, since rmcp drops a call to `receive` whenever something else
    /// happens first.
    messages: mpsc::Receiver<RxJsonRpcMessage<RoleServer>>,
    reading: JoinHandle<()>,
    output: Arc<Mutex<Output<W>>>,
}

impl<W: AsyncWrite + Send + Unpin + 'static> Lines<W> {
    /// Must be called within a runtime.
    pub(super) fn new((input, output): (impl AsyncRead + Send + Unpin + 'static, W)) -> Self {
        let output = Arc::new(Mutex::new(Output {
            writer: Some(output),
            unsent: BytesMut::new(),
        }));
        let (sender, messages) = mpsc::channel(1);
        let reading = tokio::spawn(read(BufReader::new(input), sender, output.clone()));
        Self {
            messages,
            reading,
            output,
        }
    }
}

impl<W: AsyncWrite + Send + Unpin + 'static> Transport<RoleServer> for Lines<W> {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let output = self.output.clone();
        async move { output.lock().await.send(&item).await }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        self.messages.recv().await
    }

    async fn close(&mut self) -> io::Result<()> {
        self.reading.abort();
        self.output.lock().await.writer = None;
        Ok(())
    }
}

impl<W> Drop for Lines<W> {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

/// Where lines go out.
#[derive(Debug)]
struct Output<W> {
    /// None once the transport is closed.
    writer: Option<W>,
    /// What is not written yet. It outlives a call to `send` that is dropped halfway: no line goes out in part.
    unsent: BytesMut,
}

impl<W: AsyncWrite + Unpin> Output<W> {
    async fn send(&mut self, message: &TxJsonRpcMessage<RoleServer>) -> io::Result<()> {
        let Some(writer) = &mut self.writer else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        self.unsent.extend_from_slice(&serde_json::to_vec(message)?);
        self.unsent.extend_from_slice(b"\n");
        while !self.unsent.is_empty() {
            if writer.write_buf(&mut self.unsent).await? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        writer.flush().await
    }
}

/// Reads lines until the input ends or nobody wants more messages.
async fn read<W: AsyncWrite + Unpin>(
    mut input: impl AsyncBufRead + Unpin,
    messages: mpsc::Sender<RxJsonRpcMessage<RoleServer>>,
    output: Arc<Mutex<Output<W>>>,
) {
    let mut line = Vec::new();
    loop {
        let answer = match next_line(&mut input, &mut line).await {
            Ok(Line::End) => return,
            Err(error) => return tracing::warn!(%error, "reading standard input"),
            Ok(Line::TooLong) => Some(error(
                ErrorCode::INVALID_REQUEST,
                format!("the line is more than {MAX_LINE_BYTES} bytes"),
                None,
            )),
            Ok(Line::Whole) => {
                let text = line
                    .strip_prefix(b"\xef\xbb\xbf")
                    .unwrap_or(&line)
                    .trim_ascii();
                if text.is_empty() {
                    continue;
                }
                match serde_json::from_slice(text) {
                    Ok(message) => match messages.send(message).await {
                        Ok(()) => None,
                        Err(_nobody_reads) => return,
                    },
                    Err(_) => objection(text),
                }
            }
        };
        if let Some(answer) = answer
            && output.lock().await.send(&answer).await.is_err()
        {
            return;
        }
    }
}

enum Line {
    Whole,
    TooLong,
    End,
}

/// Reads one line, of which no more than [`MAX_LINE_BYTES`] are kept.
async fn next_line(
    input: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
) -> io::Result<Line> {
    line.clear();
    let mut part = (&mut *input).take(MAX_LINE_BYTES as u64);
    if part.read_until(b'\n', line).await? == 0 {
        return Ok(Line::End);
    }
    if line.len() < MAX_LINE_BYTES || line.ends_with(b"\n") {
        return Ok(Line::Whole);
    }
    loop {
        line.clear();
        let mut part = (&mut *input).take(MAX_LINE_BYTES as u64);
        if part.read_until(b'\n', line).await? == 0 || line.ends_with(b"\n") {
            return Ok(Line::TooLong);
        }
    }
}

/// The answer to a line that is not a message. None for what is never answered: notifications and answers.
fn objection(text: &[u8]) -> Option<TxJsonRpcMessage<RoleServer>> {
    let value: Value = match serde_json::from_slice(text) {
        Ok(value) => value,
        Err(problem) => {
            return Some(error(
                ErrorCode::PARSE_ERROR,
                format!("the line is not JSON: {problem}"),
                None,
            ));
        }
    };
    let Some(object) = value.as_object() else {
        let expected = "expected one JSON-RPC message, an object; batches are not supported";
        return Some(error(ErrorCode::INVALID_REQUEST, expected.to_owned(), None));
    };
    if object.contains_key("result")
        || object.contains_key("error")
        || !object.contains_key("id") && object.contains_key("method")
    {
        tracing::debug!(
            line = excerpt(&String::from_utf8_lossy(text)),
            "a message that was not understood"
        );
        return None;
    }
    let id: Option<RequestId> = object
        .get("id")
        .and_then(|id| serde_json::from_value(id.clone()).ok());
    let expected = "expected a JSON-RPC request: \"jsonrpc\" (\"2.0\"), \"id\" (a string or an integer) and \"method\" (a string)";
    Some(error(ErrorCode::INVALID_REQUEST, expected.to_owned(), id))
}

fn error(code: ErrorCode, message: String, id: Option<RequestId>) -> TxJsonRpcMessage<RoleServer> {
    TxJsonRpcMessage::<RoleServer>::error(McpError::new(code, message, None), id)
}

/// Reads all that a client writes, for fuzzing: how many messages it makes, and the lines that are answered.
#[cfg(feature = "fuzzing")]
pub fn read_lines(input: &[u8]) -> (usize, Vec<u8>) {
    let mut answers = Vec::new();
    let output = Output {
        writer: Some(io::Cursor::new(&mut answers)),
        unsent: BytesMut::new(),
    };
    let (sender, mut receiver) = mpsc::channel(1);
    let count = async {
        let mut count = 0;
        while receiver.recv().await.is_some() {
            count += 1;
        }
        count
    };
    let reading = read(input, sender, Arc::new(Mutex::new(output)));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime that does nothing but compute");
    let ((), messages) = runtime.block_on(futures::future::join(reading, count));
    (messages, answers)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What is answered to a line, and how many messages it makes.
    async fn answers(input: &[u8]) -> (Vec<Value>, usize) {
        let mut output = Vec::new();
        let shared = Arc::new(Mutex::new(Output {
            writer: Some(io::Cursor::new(&mut output)),
            unsent: BytesMut::new(),
        }));
        let (sender, mut messages) = mpsc::channel(100);
        read(input, sender, shared).await;
        let count = std::iter::from_fn(|| messages.try_recv().ok()).count();
        let text = String::from_utf8(output).unwrap();
        (
            text.lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect(),
            count,
        )
    }

    #[tokio::test]
    async fn a_line_that_is_no_message_is_answered_and_the_next_one_read() {
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        for (line, code, id) in [
            ("{", -32700, Value::Null),
            ("hello", -32700, Value::Null),
            ("[]", -32600, Value::Null),
            ("7", -32600, Value::Null),
            (r#"{"jsonrpc":"2.0","id":7}"#, -32600, json!(7)),
            (r#"{"id":"a","method":"ping"}"#, -32600, json!("a")),
        ] {
            let (answers, messages) = answers(format!("{line}\r\n\n{request}\n").as_bytes()).await;
            assert_eq!(answers.len(), 1, "{line}");
            assert_eq!(
                (answers[0]["error"]["code"].as_i64(), &answers[0]["id"]),
                (Some(code), &id),
                "{line}"
            );
            assert_eq!(messages, 1, "{line}");
        }
    }

    #[tokio::test]
    async fn notifications_and_answers_are_never_answered() {
        for line in [
            r#"{"method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"the line is not JSON"}}"#,
            r#"{"jsonrpc":"2.0","error":{}}"#,
            r#"{"result":1}"#,
        ] {
            assert_eq!(
                answers(format!("{line}\n").as_bytes()).await.0,
                Vec::<Value>::new(),
                "{line}"
            );
        }
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_refused_and_the_next_one_read() {
        let mut input = vec![b' '; 3 * MAX_LINE_BYTES];
        input.extend_from_slice(b"\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}");
        let (answers, messages) = answers(&input).await;
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0]["error"]["code"], -32600);
        assert_eq!(messages, 1);
    }
}
