package distant

import (
	"math"

	"github.com/tend-run/tend/internal/protocol/distant/wire"
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

func (f *fields) str(name string) string { return needed(f, name, wire.Value.Str) }

func (f *fields) bytes(name string) []byte { return needed(f, name, wire.Value.Bytes) }

func (f *fields) uint(name string, max uint64) uint64 {
	return needed(f, name, func(v wire.Value) (uint64, error) { return v.Uint(max) })
}

// optStr is "" for a string that is absent or null.
func (f *fields) optStr(name string) string { return optional(f, name, "", wire.Value.Str) }

// optUint is def for a number that is absent or null.
func (f *fields) optUint(name string, def, max uint64) uint64 {
	return optional(f, name, def, func(v wire.Value) (uint64, error) { return v.Uint(max) })
}

func (f *fields) id() uint32 { return uint32(f.uint("id", math.MaxUint32)) }

// flag is false for a boolean that is absent or null.
func (f *fields) flag(name string) bool { return optional(f, name, false, wire.Value.Bool) }

// strs is nil for a list that is absent or null.
func (f *fields) strs(name string) (out []string) {
	for _, v := range optional(f, name, nil, wire.Value.Array) {
		out = append(out, decoded(f, name, v, wire.Value.Str))
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

// needed decodes a field that must be there.
func needed[T any](f *fields, name string, get func(wire.Value) (T, error)) (out T) {
	if v := f.need(name); v != nil {
		out = decoded(f, name, v, get)
	}
	return out
}

// optional decodes a field, and is def for one that is absent or null.
func optional[T any](f *fields, name string, def T, get func(wire.Value) (T, error)) T {
	if v := f.get(name); v != nil && !v.Null() {
		return decoded(f, name, v, get)
	}
	return def
}

func decoded[T any](f *fields, name string, v wire.Value, get func(wire.Value) (T, error)) T {
	out, err := get(v)
	if err != nil {
		f.fail(name, err)
	}
	return out
}
