package healing

import (
	"testing"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/support/proctest"
)

// What is in testdata/v1 was written by the server of November 2026, before the first
// release. It is never rewritten: a format that changes has another directory beside it.
func TestRecordsOfTheHealerAreReadByEachVersion(t *testing.T) {
	d, s, p := new(declaration), new(state), new(pending)
	proctest.Record(t, "testdata/v1/declared.json", d)
	proctest.Record(t, "testdata/v1/state.json", s)
	proctest.Record(t, "testdata/v1/report.json", p)
	if d.Healer == nil || d.Healer.LLM == nil || d.Key == "" || d.Token == "" || d.ReportKey == "" {
		t.Errorf("the declaration is %+v", d)
	}
	if !s.Breaker.Broken || len(s.Breaker.Begun) != 1 || s.Episode == "" || s.Ended != healer.Healing {
		t.Errorf("the state is %+v", s)
	}
	if !p.Sent || p.Sequence != 60 || p.Status == "" {
		t.Errorf("the report is %+v", p)
	}
}
