package oci

import (
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// What is in testdata/v1 was written by the server of November 2026, before the first
// release. It is never rewritten: a format that changes has another directory beside it.
func TestTheRecordOfAnImageIsReadByEachVersion(t *testing.T) {
	proctest.Record(t, "testdata/v1/image.json", new(image))
}
