# `make demo` and `make test` do all the set-up they need; both are quick when run again. Both build the whole workspace
# with the features that its tests need, so that no dependency is built twice.

.PHONY: bench instructions demo test fuzz lint guests clients backends backends-mcp try-mcp services release fmt clean help

help:
	@echo "make demo      build everything and show the main job on real data"
	@echo "make test      build everything and run every test"
	@echo "make fuzz      a minute of random input for everything that reads bytes from outside"
	@echo "make bench     measure the host against other servers, and put the table into README.md"
	@echo "make instructions  count the instructions of the shape functions, and compare them"
	@echo "make lint      rustfmt and clippy, warnings denied"
	@echo "make release   an optimised host in target/release/plimsoll"
	@echo "make guests    the plugins and test guests, as components in target/"

# Shows the host on the fleet record and on this repository's own cargo metadata.
demo: guests
	@cargo build --locked --workspace --bin plimsoll --example demo
	@target/debug/examples/demo

# Tests that compare times run last, one after the other: what else a machine does would decide them.
test: guests clients services backends backends-mcp
	cargo test --workspace --locked --lib --bins --tests
	cargo test --package plimsoll --locked --test it -- --ignored --test-threads=1

# SECONDS of random input for each target of host/fuzz.
fuzz:
	@host/fuzz/run $(SECONDS)

# Everything that is measured with a clock, over ten minutes; nothing else should run on the machine meanwhile.
bench: guests
	@plugins/build host/benches/guests/rows host/benches/guests/rows-js >/dev/null
	@host/benches/peers/install
	cargo bench --locked --package plimsoll --bench parts
	cargo bench --locked --package plimsoll --bench load

instructions:
	@host/benches/count

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- --deny warnings

guests:
	@plugins/build >/dev/null

# What the tests call the host with: other people's MCP clients and their conformance suite.
clients:
	@tests/install clients

# The MCP servers that tests put behind the host.
backends-mcp: clients
	@tests/install backends-mcp

# Calls another MCP server through the host.
try-mcp: guests backends-mcp
	@cargo build --locked --workspace --bin plimsoll --example demo
	@plugins/mcp/try

# What tests start for themselves: PostgreSQL and Chromium.
services:
	@tests/services/install

# What plugins call in the tests: a FastAPI service and json-server, and the OpenAPI documents of npm packages.
backends:
	@tests/install backends

release:
	cargo build --release --package plimsoll --locked

fmt:
	cargo fmt --all

clean:
	cargo clean
