;; A component that never finishes being instantiated: its core module loops in its start function.
(component
  (core module $module
    (func $spin (loop $again (br $again)))
    (start $spin)
    (func (export "nothing")))
  (core instance $instance (instantiate $module))
  (func $nothing (canon lift (core func $instance "nothing")))
  (instance $tools
    (export "list-tools" (func $nothing))
    (export "call-tool" (func $nothing)))
  (export "plimsoll:plugin/tools@0.1.0" (instance $tools)))
