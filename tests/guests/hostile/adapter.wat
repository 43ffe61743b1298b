;; A backend-adapter in plain core WebAssembly, with the collection `rows`, whose functions do what `tests/it/battery.rs`
;; puts in place of the words in capitals.
(module
  (memory (export "memory") 2)
  ;; Ok, and the list of collections: at 1040, one.
  (data (i32.const 1024) "\00\00\00\00\10\04\00\00\01\00\00\00")
  ;; The collection: name and description; in its shape, 24 bytes on, a key 12 bytes on; everything else is zero.
  (data (i32.const 1040) "\00\08\00\00\04\00\00\00\00\08\00\00\04\00\00\00")
  (data (i32.const 1076) "\01\00\00\00\10\08\00\00\02\00\00\00")
  (data (i32.const 2048) "rows")
  (data (i32.const 2064) "id")
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 65536))
  (func (export "plimsoll:plugin/backend@0.1.0#list-collections") (result i32) LIST (i32.const 1024))
  (func (export "plimsoll:plugin/backend@0.1.0#query")
    (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) (unreachable))
  (func (export "plimsoll:plugin/backend@0.1.0#get") (param i32 i32 i32 i32) (result i32) (unreachable)))
