package sockets

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// The first arguments of this program when it is a holder, and when it is to become the
// command of a service.
const (
	holdVerb = "hold-sockets"
	execVerb = "with-sockets"
)

// MaxSockets bounds the sockets of one service. One message of the kernel carries 253
// descriptors.
const MaxSockets = 32

// maxMessage bounds a message, in bytes: it is several times what MaxSockets take.
const maxMessage = 32 << 10

// Exit statuses of a process that did not become its command.
const (
	NoSockets = 125 // they could not be had
	NoProgram = 127 // there is none of that name, or it cannot be executed
)

// Socket is one that is held.
type Socket struct {
	Name string `json:"name"`
	// Address is IP:PORT, or unix:/PATH.
	Address string `json:"address"`
}

// unixPrefix begins the address of a unix socket.
const unixPrefix = "unix:"

// request is a question to a holder. Exactly one field is set.
type request struct {
	// Hold are the sockets that there are to be; others are closed.
	Hold []Socket `json:"hold,omitempty"`
	Give bool     `json:"give,omitempty"`
}

// reply is its answer.
type reply struct {
	// Names of the sockets that come with it, in their order.
	Names []string `json:"names,omitempty"`
	// Socket that could not be opened, and why.
	Socket string        `json:"socket,omitempty"`
	Errno  syscall.Errno `json:"errno,omitempty"`
}

// SocketError: a socket cannot be opened. It unwraps to the kernel's error.
type SocketError struct {
	Socket
	Errno syscall.Errno
}

func (e *SocketError) Error() string {
	return fmt.Sprintf("the socket %s cannot be opened at %s: %v", e.Name, e.Address, e.Errno)
}
func (e *SocketError) Unwrap() error { return e.Errno }

// HolderArgv is the command line of a holder. program is tend as it is started, and name
// where it listens: nobody else on the machine may know it before.
func HolderArgv(program []string, name string) []string {
	return append(append([]string{}, program...), holdVerb, name)
}

// NameOf returns the name in a command line of [HolderArgv]; "": it is none.
func NameOf(argv []string) string {
	if n := len(argv); n > 2 && argv[n-2] == holdVerb {
		return argv[n-1]
	}
	return ""
}

// Argv is the command line that becomes argv with the sockets of a holder.
func Argv(program []string, name string, holder int, argv []string) []string {
	out := append(append([]string{}, program...), execVerb, name, strconv.Itoa(holder), "--")
	return append(out, argv...)
}

// Command is the command of a service in a command line of [Argv]; another one is
// returned as it is.
func Command(argv []string) []string {
	for i := 1; i+4 < len(argv); i++ {
		if argv[i] == execVerb && argv[i+3] == "--" {
			return argv[i+4:]
		}
	}
	return argv
}

// Called reports whether the arguments of this process are those of [HolderArgv] or [Argv].
func Called(args []string) bool {
	return len(args) > 1 && (args[1] == holdVerb || args[1] == execVerb)
}

// Main does what the arguments after the program's name say. It returns an exit status,
// and not at all when this process has become another program.
func Main(args, environ []string) int {
	status, err := NoSockets, error(nil)
	switch {
	case len(args) == 2 && args[0] == holdVerb:
		err = hold(args[1])
	case len(args) > 4 && args[0] == execVerb && args[3] == "--":
		status, err = become(args[1], args[2], args[4:], environ)
	default:
		err = fmt.Errorf("usage: tend %s NAME, or tend %s NAME PID -- COMMAND [ARG...]; the daemon calls them", holdVerb, execVerb)
	}
	fmt.Fprintln(os.Stderr, "tend:", err)
	return status
}
