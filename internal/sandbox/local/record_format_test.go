package local

import (
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// What is in testdata/v1 was written by the server of November 2026, before the first
// release. It is never rewritten: a format that changes has another directory beside it.
func TestRecordsOfSandboxesAreReadByEachVersion(t *testing.T) {
	proctest.Record(t, "testdata/v1/sandbox.json", new(record))
	proctest.Record(t, "testdata/v1/snapshot.json", new(snapshot))
	proctest.Record(t, "testdata/v1/template.json", new(template))
	proctest.Record(t, "testdata/v1/volume.json", new(aVolume))
}
