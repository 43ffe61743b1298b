;; A component whose exports have the right names and the wrong types.
(component
  (core module $module (func (export "nothing")))
  (core instance $instance (instantiate $module))
  (func $nothing (canon lift (core func $instance "nothing")))
  (instance $tools
    (export "list-tools" (func $nothing))
    (export "call-tool" (func $nothing)))
  (export "plimsoll:plugin/tools@0.1.0" (instance $tools)))
