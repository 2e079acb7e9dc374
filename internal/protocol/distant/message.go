package distant

import (
	"github.com/tend-run/tend/internal/protocol/distant/wire"
	"github.com/tend-run/tend/process"
)

// message is the payload of a response: a [wire.Map] or a *[fault]. The order of the
// fields is the original's: its readers know no other, and refuse fields they do not
// know.
type message any

// putMessage writes a message.
func putMessage(w wire.Writer, m message) {
	if f, ok := m.(*fault); ok {
		m = f.message()
	}
	wire.Put(w, m)
}

var okMessage = wire.Map{"type", "ok"}

// idMessage is proc_spawned, search_started or search_done.
func idMessage(typ string, id uint32) message { return wire.Map{"type", typ, "id", id} }

// doneMessage has the code as a shell would; an end that was not seen (nil: not
// known) has none.
func doneMessage(id uint32, exit *process.Exit) message {
	code := -1
	switch {
	case exit == nil || exit.Lost():
	case exit.Signal != 0:
		code = 128 + exit.Signal
	default:
		code = exit.Code
	}
	m := wire.Map{"type", "proc_done", "id", id, "success", code == 0}
	if code >= 0 {
		m = append(m, "code", int64(code))
	}
	return m
}

// dataType is the type of output messages. A terminal has stdout alone.
func dataType(s process.Stream) string {
	if s == process.Stderr {
		return "proc_stderr"
	}
	return "proc_stdout"
}

func dataMessage(typ string, id uint32, data []byte) message {
	return wire.Map{"type", typ, "id", id, "data", data}
}
