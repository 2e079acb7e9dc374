//go:build unix

package tend_test

import (
	"testing"

	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/process/processtest"
	"github.com/tend-run/tend/sdk/go"
)

func TestTheClientIsAManager(t *testing.T) {
	t.Parallel()
	for name, http1 := range map[string]bool{"over HTTP/2": false, "over HTTP/1.1": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keeper := testkeeper.New(t) // it is three processes: one for each case would take most of the time
			processtest.Run(t, func(t *testing.T) process.Manager {
				return dial(t, serve(t, keeper, nil, nil).URL, tend.Options{HTTP1: http1})
			})
		})
	}
}
