;; A valid component that exports neither tools nor a backend.
(component
  (core module $module (func (export "hello")))
  (core instance $instance (instantiate $module))
  (func (export "hello") (canon lift (core func $instance "hello"))))
