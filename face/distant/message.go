package distant

import (
	"github.com/tend-run/tend/face/distant/wire"
	"github.com/tend-run/tend/process"
)

// message is the payload of a response. The order of the fields is the
// original's: its readers know no other, and refuse fields they do not know.
type message interface {
	put(w wire.Writer)
}

// begin starts a message of n fields besides its type.
func begin(w wire.Writer, typ string, n int) {
	w.Object(n + 1)
	w.Key("type").Str(typ)
}

type okMessage struct{}

func (okMessage) put(w wire.Writer) {
	begin(w, "ok", 0)
	w.EndObject()
}

// idMessage is proc_spawned, search_started or search_done.
type idMessage struct {
	typ string
	id  uint32
}

func (m idMessage) put(w wire.Writer) {
	begin(w, m.typ, 1)
	w.Key("id").Uint(uint64(m.id))
	w.EndObject()
}

type doneMessage struct {
	id   uint32
	exit *process.Exit // nil: not known
}

// put writes the code as a shell would; an end that was not seen has none.
func (m doneMessage) put(w wire.Writer) {
	code := -1
	switch {
	case m.exit == nil || m.exit.Lost():
	case m.exit.Signal != 0:
		code = 128 + m.exit.Signal
	default:
		code = m.exit.Code
	}
	n := 2
	if code >= 0 {
		n++
	}
	begin(w, "proc_done", n)
	w.Key("id").Uint(uint64(m.id))
	w.Key("success").Bool(code == 0)
	if code >= 0 {
		w.Key("code").Int(int64(code))
	}
	w.EndObject()
}

// dataType is the type of output messages. A terminal has stdout alone.
func dataType(s process.Stream) string {
	if s == process.Stderr {
		return "proc_stderr"
	}
	return "proc_stdout"
}

type dataMessage struct {
	typ  string
	id   uint32
	data []byte
}

func (m dataMessage) put(w wire.Writer) {
	begin(w, m.typ, 2)
	w.Key("id").Uint(uint64(m.id))
	w.Key("data").Bytes(m.data)
	w.EndObject()
}

type blobMessage struct{ data []byte }

func (m blobMessage) put(w wire.Writer) {
	begin(w, "blob", 1)
	w.Key("data").Bytes(m.data)
	w.EndObject()
}

type textMessage struct{ text string }

func (m textMessage) put(w wire.Writer) {
	begin(w, "text", 1)
	w.Key("data").Str(m.text)
	w.EndObject()
}

type existsMessage struct{ value bool }

func (m existsMessage) put(w wire.Writer) {
	begin(w, "exists", 1)
	w.Key("value").Bool(m.value)
	w.EndObject()
}

type versionMessage struct {
	server       string
	capabilities []string
}

func (m versionMessage) put(w wire.Writer) {
	begin(w, "version", 3)
	w.Key("server_version").Str(m.server)
	w.Key("protocol_version").Str(protocolVersion)
	w.Key("capabilities").Array(len(m.capabilities))
	for _, c := range m.capabilities {
		w.Str(c)
	}
	w.EndArray()
	w.EndObject()
}

type systemMessage struct{ os, arch, dir, user, shell string }

func (m systemMessage) put(w wire.Writer) {
	begin(w, "system_info", 7)
	for _, f := range [...][2]string{
		{"family", "unix"}, {"os", m.os}, {"arch", m.arch}, {"current_dir", m.dir},
		{"main_separator", "/"}, {"username", m.user}, {"shell", m.shell},
	} {
		w.Key(f[0]).Str(f[1])
	}
	w.EndObject()
}
