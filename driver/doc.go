// Package driver makes places where programs run: sandboxes. A [Driver]
// creates and finds them; a [Sandbox] starts, stops and destroys one of them
// and gives access to what is inside: its processes, files and ports.
//
// The control planes of the E2B and LangSmith protocols are faces over a
// Driver, so a sandbox that an SDK creates can be a directory of this machine
// (package driver/host), a namespace, a container or a pod. [Capabilities]
// says what a driver really isolates. What a driver cannot do is an error that
// matches [ErrUnsupported]; it is never ignored.
//
// Package driver/drivertest holds the suite that each driver passes.
package driver
