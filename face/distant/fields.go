package distant

import (
	"math"

	"github.com/tend-run/tend/face/distant/wire"
)

// fields decodes the fields of a map. The first error stays and makes all
// further calls return zero values; end reports it, or a field that nobody
// asked for.
type fields struct {
	all  []wire.Field
	used []bool
	at   string // name of the map, for errors
	err  error
}

func fieldsOf(v wire.Value, at string) *fields {
	all, err := v.Object()
	if err != nil && at != "" {
		err = wire.In(at, err)
	}
	return &fields{all: all, used: make([]bool, len(all)), at: at, err: err}
}

func (f *fields) name(field string) string {
	if f.at == "" {
		return field
	}
	return f.at + "." + field
}

func (f *fields) fail(field string, err error) {
	if f.err == nil {
		f.err = wire.In(f.name(field), err)
	}
}

// get returns the value of a field, or nil.
func (f *fields) get(name string) wire.Value {
	if f.err != nil {
		return nil
	}
	for i := range f.all {
		if f.all[i].Name == name {
			f.used[i] = true
			return f.all[i].Value
		}
	}
	return nil
}

// need is get of a field that must be there.
func (f *fields) need(name string) wire.Value {
	v := f.get(name)
	if v == nil && f.err == nil {
		f.err = &wire.Error{Field: f.name(name), Reason: "is missing"}
	}
	return v
}

func (f *fields) str(name string) (s string) {
	if v := f.need(name); v != nil {
		s = decoded(f, name, v.Str)
	}
	return s
}

// optStr is "" for a string that is absent or null.
func (f *fields) optStr(name string) (s string) {
	if v := f.get(name); v != nil && !v.Null() {
		s = decoded(f, name, v.Str)
	}
	return s
}

func (f *fields) bytes(name string) (b []byte) {
	if v := f.need(name); v != nil {
		b = decoded(f, name, v.Bytes)
	}
	return b
}

func (f *fields) uint(name string, max uint64) (n uint64) {
	if v := f.need(name); v != nil {
		n = decoded(f, name, func() (uint64, error) { return v.Uint(max) })
	}
	return n
}

// optUint is def for a number that is absent or null.
func (f *fields) optUint(name string, def, max uint64) uint64 {
	if v := f.get(name); v != nil && !v.Null() {
		return decoded(f, name, func() (uint64, error) { return v.Uint(max) })
	}
	return def
}

func (f *fields) id() uint32 { return uint32(f.uint("id", math.MaxUint32)) }

// flag is false for a boolean that is absent or null.
func (f *fields) flag(name string) (b bool) {
	if v := f.get(name); v != nil && !v.Null() {
		b = decoded(f, name, v.Bool)
	}
	return b
}

// strs is nil for a list that is absent or null.
func (f *fields) strs(name string) []string {
	v := f.get(name)
	if v == nil || v.Null() {
		return nil
	}
	values := decoded(f, name, v.Array)
	out := make([]string, 0, len(values))
	for _, v := range values {
		out = append(out, decoded(f, name, v.Str))
	}
	return out
}

// object is nil for a map that is absent or null.
func (f *fields) object(name string) *fields {
	v := f.get(name)
	if v == nil || v.Null() {
		return nil
	}
	return f.inside(name, v)
}

// needObject is object of a map that must be there.
func (f *fields) needObject(name string) *fields {
	v := f.need(name)
	if v == nil {
		return &fields{err: f.err}
	}
	return f.inside(name, v)
}

func (f *fields) inside(name string, v wire.Value) *fields {
	o := fieldsOf(v, f.name(name))
	if o.err != nil && f.err == nil {
		f.err = o.err
	}
	return o
}

// end reports the first error, or a field that is not known here.
func (f *fields) end() error {
	if f.err != nil {
		return f.err
	}
	for i, used := range f.used {
		if !used {
			return &wire.Error{Field: f.name(f.all[i].Name), Reason: "is not known here"}
		}
	}
	return nil
}

// done reports the first error, and lets fields be that nobody knows: some of
// the original's maps are open.
func (f *fields) done() error { return f.err }

func decoded[T any](f *fields, name string, get func() (T, error)) T {
	v, err := get()
	if err != nil {
		f.fail(name, err)
	}
	return v
}
