;; A component with the right exports that wants what no grant gives: a later WASI, and an interface nobody knows.
(component
  (import "wasi:filesystem/types@0.9.0" (instance))
  (import "acme:billing/charge@1.0.0" (instance (export "charge" (func (param "cents" u32)))))
  (core module $module (func (export "nothing")))
  (core instance $instance (instantiate $module))
  (func $nothing (canon lift (core func $instance "nothing")))
  (instance $tools
    (export "list-tools" (func $nothing))
    (export "call-tool" (func $nothing)))
  (export "plimsoll:plugin/tools@0.1.0" (instance $tools)))
