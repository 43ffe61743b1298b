;; A tool-handler in plain core WebAssembly, for what no compiler would write. `tests/it/battery.rs` puts parts in place of
;; the words in capitals and wraps it as a component.
(module
  IMPORTS
  (memory (export "memory") 2)
  FIELDS
  ;; Ok, and the list of tools: at 1040, one.
  (data (i32.const 1024) "\00\00\00\00\10\04\00\00\01\00\00\00")
  ;; The tool: its name at 2048, its description at 3072, its schema at 3840; everything else is zero, which is nothing.
  (data (i32.const 1040) "\00\08\00\00NAME_BYTES\00\00\00")
  (data (i32.const 1060) "\00\0c\00\00\09\00\00\00\00\0f\00\00\02\00\00\00")
  (data (i32.const 2048) "NAME")
  (data (i32.const 3072) "One tool.")
  (data (i32.const 3840) "{}")
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) REALLOC)
  (func (export "plimsoll:plugin/tools@0.1.0#list-tools") (result i32) LIST)
  (func (export "cabi_post_plimsoll:plugin/tools@0.1.0#call-tool") (param i32) POST)
  ;; At 512 lies zero: ok.
  (func (export "plimsoll:plugin/tools@0.1.0#call-tool") (param i32 i32 i32 i32) (result i32)
    (local $handle i32)
    CALL
    (i32.const 512)))
