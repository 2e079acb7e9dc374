// Package interpreter runs code in sandboxes by cells, as a notebook does: what E2B calls the code
// interpreter. A [Service] has contexts, each with one kernel, which runs the cells of its context
// in order. The faces (port 49999 of a sandbox, MCP) are in packages of their own.
//
// # Kernels
//
// A kernel is a process that tend has started in the sandbox, like any other: its output is in the
// spool, and its input is delivered exactly once. So its state, the cell that runs, and the output of
// that cell survive the death and the upgrade of each role of tend. Nothing of a context is in the
// server's memory: contexts are found by the labels of their processes.
//
// A Python kernel is a fork of a process of the sandbox that has imported what cells often need
// (the zygote; kernels/python/zygote.py), which takes milliseconds. tend's process of it is a cat that
// lives as long as the kernel. Kernels of other languages are programs of their own.
//
// # The lines of a kernel
//
// Each line of a kernel's stdin is a command, and each line of its stdout an event. A line of stdin that is no JSON is
// skipped: whoever wrote it was killed meanwhile.
//
//	{"cell": CELL, "code": …, "env": {…}}   run this; of a kernel that has started before its sandbox was somebody's, the
//	                                        first has the sandbox's variables as "base"
//	{"cancel": CELL}                        interrupt it, or forget it if it has not begun
//
//	CELL {"type": …, …}                     an event of E2B's protocol, as it goes to clients
//	- {"type": "ready", "pid": …}           the first line
//	- {"type": "code", "cell": …, "code": …}  before the first event of a cell; see Service.Watch
//
// The last event of a cell is end_of_execution. A kernel that dies leaves a line without an end, or none. Kernels of
// older versions of tend live on in sandboxes: change this in ways that they understand.
package interpreter
