package native

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/support/proctest"
)

// Each method of the API is known to read or not: one that is added is denied to readers
// until somebody has decided.
func TestEachMethodIsKnownToReadOrNot(t *testing.T) {
	left := maps.Clone(reads)
	protoregistry.GlobalFiles.RangeFilesByPackage(tendv1.File_tend_v1_process_proto.Package(), func(f protoreflect.FileDescriptor) bool {
		for n := range f.Services().Len() {
			s := f.Services().Get(n)
			for m := range s.Methods().Len() {
				path := fmt.Sprintf("/%s/%s", s.FullName(), s.Methods().Get(m).Name())
				if _, known := reads[path]; !known {
					t.Errorf("%s is neither one that reads nor one that does not: say so in reads.go", path)
				}
				delete(left, path)
			}
		}
		return true
	})
	if len(left) > 0 {
		t.Errorf("there are no methods %q", slices.Sorted(maps.Keys(left)))
	}
	if len(reads) < 60 {
		t.Errorf("there are only %d methods", len(reads))
	}
	// What a name says that changes is none that reads.
	for path, read := range reads {
		name := path[strings.LastIndexByte(path, '/')+1:]
		for _, verb := range []string{"Start", "Stop", "Create", "Write", "Remove", "Delete", "Kill", "Signal", "Update", "Open", "Access", "Heal", "Cancel", "Apply", "Move", "Make"} {
			if read && strings.HasPrefix(name, verb) {
				t.Errorf("%s is said to read alone", path)
			}
		}
	}
}

// No answer of a method that reads has a value of an environment, wherever in it there is one.
func TestNoAnswerToAReaderHasValuesOfEnvironments(t *testing.T) {
	found := map[protoreflect.FullName]bool{}
	protoregistry.GlobalFiles.RangeFilesByPackage(tendv1.File_tend_v1_process_proto.Package(), func(f protoreflect.FileDescriptor) bool {
		for n := range f.Services().Len() {
			s := f.Services().Get(n)
			for i := range s.Methods().Len() {
				method := s.Methods().Get(i)
				if !reads[fmt.Sprintf("/%s/%s", s.FullName(), method.Name())] {
					continue
				}
				m := proctest.Value(protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName()))(t).New()
				fill(m, found, 8)
				withhold(m.Interface())
				if text := prototext.Format(m.Interface()); strings.Contains(text, "hunter2") {
					t.Errorf("%s tells a reader %.300s", method.FullName(), text)
				}
			}
		}
		return true
	})
	if len(found) < 3 {
		t.Errorf("there are environments in %v alone", found)
	}
}

// fill puts values into each environment that a message may have.
func fill(m protoreflect.Message, found map[protoreflect.FullName]bool, depth int) {
	fields := m.Descriptor().Fields()
	for n := range fields.Len() {
		switch f := fields.Get(n); {
		case f.IsMap():
			if f.Name() == "env" {
				found[f.FullName()] = true
				m.Mutable(f).Map().Set(protoreflect.ValueOfString("KEY").MapKey(), protoreflect.ValueOfString("hunter2"))
			}
		case f.Name() == "raw_env":
			found[f.FullName()] = true
			v := m.Mutable(f).List().AppendMutable().Message()
			v.Set(v.Descriptor().Fields().ByName("value"), protoreflect.ValueOfBytes([]byte("hunter2")))
		case f.Kind() != protoreflect.MessageKind || depth == 0:
		case f.IsList():
			fill(m.Mutable(f).List().AppendMutable().Message(), found, depth-1)
		case f.ContainingOneof() == nil || f.ContainingOneof().IsSynthetic():
			fill(m.Mutable(f).Message(), found, depth-1)
		}
	}
}

// What is withheld from one viewer of the overview is not withheld from the others, who
// are sent the same messages.
func TestNothingIsWithheldFromOtherViewers(t *testing.T) {
	run := &tendv1.SandboxRun{Env: map[string]string{"KEY": "hunter2"}}
	seen := &tendv1.WatchOverviewResponse{Sandboxes: []*tendv1.OverviewSandbox{{Sandbox: &tendv1.Sandbox{Run: run}}}}
	to := &sentTo{}
	proctest.Must(t, readersConn{to}.Send(seen))
	if got := fmt.Sprint(to.last); strings.Contains(got, "hunter2") || !strings.Contains(got, "KEY") || run.Env["KEY"] != "hunter2" {
		t.Errorf("a reader sees %s, and the others %v", got, run)
	}
}

// sentTo keeps what was sent last.
type sentTo struct {
	connect.StreamingHandlerConn
	last any
}

func (s *sentTo) Send(m any) error {
	s.last = m
	return nil
}
