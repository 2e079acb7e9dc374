package native

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
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
