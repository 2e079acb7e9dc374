//go:build !linux

package cli

import (
	"context"
	"fmt"
	"runtime"

	"github.com/tend-run/tend/internal/cli/doctor"
)

// checkHere has no daemon to check here.
func checkHere(_ context.Context, _ *invocation, dir string) (*doctorFacts, error) {
	return &doctorFacts{Asked: "nobody", Checks: []doctor.Finding{{
		Name: "daemon", State: doctor.Broken, Detail: "tend serve needs Linux, and this is " + runtime.GOOS,
		Mend: fmt.Sprintf("tend doctor --url URL, of a daemon elsewhere (%s is not used here)", dir),
	}}}, nil
}
