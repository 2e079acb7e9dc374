package project

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"

	"github.com/tend-run/tend/internal/heal/checkpoint"
	"github.com/tend-run/tend/internal/heal/guard"
	"github.com/tend-run/tend/internal/heal/playbook"
	"github.com/tend-run/tend/internal/heal/view"
)

const (
	// maxLine bounds a request or an answer, in bytes.
	maxLine = 64 << 20
	// maxValues bounds the values in an answer: short ones take many times the room that
	// they have on the wire.
	maxValues = 1 << 20
)

// values is at least how many values a line of JSON has, without the first of each list.
func values(line []byte) (n int) {
	text := false
	for i := 0; i < len(line); i++ {
		switch b := line[i]; {
		case text && b == '\\':
			i++
		case b == '"':
			text = !text
		case !text && b == ',':
			n++
		}
	}
	return n
}

type request struct {
	ID     int64           `json:"id"`
	Method string          `json:"method"`
	Args   json.RawMessage `json:"args,omitempty"`
}

// cancel is the method that ends the request of its ID.
const cancel = "cancel"

type answer struct {
	ID     int64           `json:"id"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *fault          `json:"error,omitempty"`
}

// fault is an error of which the other side knows the text, and whether it is one of those
// that somebody asks for.
type fault struct {
	Text string `json:"text"`
	Is   string `json:"is,omitempty"`
}

// kinds are the errors that are told apart.
var kinds = map[string]error{"not_exist": fs.ErrNotExist, "no_commands": ErrNoCommands, "ask": guard.ErrAsk,
	"canceled": context.Canceled, "deadline": context.DeadlineExceeded}

func toFault(err error) *fault {
	f := &fault{Text: err.Error()}
	for name, kind := range kinds {
		if errors.Is(err, kind) {
			f.Is = name
		}
	}
	return f
}

func (f *fault) Error() string { return f.Text }
func (f *fault) Unwrap() error { return kinds[f.Is] }

// The arguments and results of methods that have more than one.
type (
	fileArgs struct {
		Name string
		Off  int64
		Most int64
		Data []byte
		// Glob and Pattern are for search, Variable and Value for set_env.
		Glob, Pattern   string
		Variable, Value string
		// Allowed: by a person; see Allowed.
		Allowed bool
	}
	fileResult struct {
		Data    []byte
		Size    int64
		Entries []guard.Entry
		Hits    []guard.Hit
		More    bool
	}
	tryArgs struct {
		Try    int
		Absorb bool
		Dir    string
		Commit *checkpoint.Commit
	}
	backArgs struct {
		Back  checkpoint.Back
		Check bool
	}
	endArgs struct {
		Port     int
		Spared   []int
		Anything bool
	}
	none struct{}
)

// handler is what a method does.
type handler func(ctx context.Context, l *Local, args json.RawMessage) (any, error)

// with is a handler whose arguments are of a type.
func with[A any](do func(ctx context.Context, l *Local, a A) (any, error)) handler {
	return func(ctx context.Context, l *Local, raw json.RawMessage) (any, error) {
		var a A
		if err := json.Unmarshal(raw, &a); err != nil {
			return nil, err
		}
		return do(ctx, l, a)
	}
}

// methods are those of Project, by their names on the wire.
var methods = map[string]handler{
	"match": with(func(ctx context.Context, l *Local, a playbook.Evidence) (any, error) { return l.Match(ctx, a) }),
	"read": with(func(ctx context.Context, l *Local, a fileArgs) (any, error) {
		data, size, err := l.files(a.Allowed).ReadFile(ctx, a.Name, a.Off, a.Most)
		return fileResult{Data: data, Size: size}, err
	}),
	"write": with(func(ctx context.Context, l *Local, a fileArgs) (any, error) {
		return none{}, l.files(a.Allowed).WriteFile(ctx, a.Name, a.Data)
	}),
	"list": with(func(ctx context.Context, l *Local, a fileArgs) (any, error) {
		all, more, err := l.files(a.Allowed).List(ctx, a.Name, int(a.Most))
		return fileResult{Entries: all, More: more}, err
	}),
	"search": with(func(ctx context.Context, l *Local, a fileArgs) (any, error) {
		all, more, err := l.Search(ctx, a.Pattern, a.Glob, int(a.Most))
		return fileResult{Hits: all, More: more}, err
	}),
	"where": with(func(ctx context.Context, l *Local, a string) (any, error) { return l.Where(ctx, a) }),
	"set_env": with(func(ctx context.Context, l *Local, a fileArgs) (any, error) {
		return none{}, l.SetEnv(ctx, a.Name, a.Variable, a.Value)
	}),
	"check_env": with(func(ctx context.Context, l *Local, a fileArgs) (any, error) {
		return none{}, l.CheckEnv(ctx, a.Name, a.Variable, a.Value)
	}),
	"take":    with(func(ctx context.Context, l *Local, a tryArgs) (any, error) { return none{}, l.Take(ctx, a.Try) }),
	"mark":    with(func(ctx context.Context, l *Local, _ none) (any, error) { return none{}, l.Mark(ctx) }),
	"absorb":  with(func(ctx context.Context, l *Local, _ none) (any, error) { return none{}, l.Absorb(ctx) }),
	"changed": with(func(ctx context.Context, l *Local, _ none) (any, error) { return l.Changed(ctx) }),
	"review":  with(func(ctx context.Context, l *Local, a tryArgs) (any, error) { return l.Review(ctx, a.Try) }),
	"commit":  with(func(ctx context.Context, l *Local, a tryArgs) (any, error) { return l.Commit(ctx, a.Try, a.Commit) }),
	"rollback": with(func(ctx context.Context, l *Local, a tryArgs) (any, error) {
		return l.Rollback(ctx, a.Try, a.Absorb)
	}),
	"take_back": with(func(ctx context.Context, l *Local, a backArgs) (any, error) { return l.TakeBack(ctx, a.Back, a.Check) }),
	"drop":      with(func(ctx context.Context, l *Local, a tryArgs) (any, error) { return none{}, l.Drop(ctx, a.Try) }),
	"move_aside": with(func(ctx context.Context, l *Local, a tryArgs) (any, error) {
		return none{}, l.MoveAside(ctx, a.Try, a.Dir)
	}),
	"stage":     with(func(ctx context.Context, l *Local, a tryArgs) (any, error) { return none{}, l.Stage(ctx, a.Try) }),
	"swap":      with(func(ctx context.Context, l *Local, a tryArgs) (any, error) { return none{}, l.Swap(ctx, a.Try, a.Dir) }),
	"check_out": with(func(ctx context.Context, l *Local, a fileArgs) (any, error) { return none{}, l.CheckOut(ctx, a.Name) }),
	"absent":    with(func(ctx context.Context, l *Local, a fileArgs) (any, error) { return none{}, l.Absent(ctx, a.Name) }),
	"truncate": with(func(ctx context.Context, l *Local, a fileArgs) (any, error) {
		return l.Truncate(ctx, a.Name, a.Most)
	}),
	"end_holder": with(func(ctx context.Context, l *Local, a endArgs) (any, error) {
		return l.EndHolder(ctx, a.Port, a.Spared, a.Anything)
	}),
	"shown":    with(func(ctx context.Context, l *Local, _ none) (any, error) { return l.Shown(ctx) }),
	"preview":  with(func(ctx context.Context, l *Local, a []view.Change) (any, error) { return l.Preview(ctx, a) }),
	"admit":    with(func(ctx context.Context, l *Local, a []view.Change) (any, error) { return l.Admit(ctx, a) }),
	"editable": with(func(ctx context.Context, l *Local, a string) (any, error) { return l.Editable(ctx, a) }),
	"apply":    with(func(ctx context.Context, l *Local, a []view.Change) (any, error) { return none{}, l.Apply(ctx, a) }),
}
