// Package driver defines sandboxes: places where programs run. A [Driver] creates and
// finds sandboxes. A [Sandbox] starts, stops and destroys one of them, and gives access
// to the processes, files and ports inside.
//
// The control planes of the E2B and LangSmith protocols are faces over a Driver, so a
// sandbox that an SDK creates can be a directory of this machine (package internal/sandbox/host),
// a namespace, a container or a pod. [Capabilities] says what a driver really isolates.
// If a driver cannot do what is requested, it returns an error that matches
// [ErrUnsupported]; it never ignores a request.
//
// Package internal/sandbox/drivertest holds the suite that each driver passes.
package driver
