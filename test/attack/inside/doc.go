// Package inside attacks from a program inside of an isolated sandbox: of a daemon of root, and of an ordinary user's.
//
//	counted   what the kernel counts for the machine's root, and has once
//	kernel    calls, files of /proc, priorities, clocks, sockets
//	ends      processes that look dead, exits, kills, pauses, copies and ends in the middle of storms, deaths of the keeper
//	entering  what can be seen and changed of a program that is on its way inside
//	streams   output, input and terminals
//	files     what file calls from outside meet: leases, FIFOs, sparse files, names without number, links
//	answers   what a program answers on its ports
//	root      what a template or a program puts in the places of /proc, /etc/passwd and the like
//
// The programs are Python, whose standard library has the calls that are needed.
package inside
