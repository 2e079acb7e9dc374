package envd_test

import (
	"context"
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/envd"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/support/proctest"
)

// slowList is a driver whose lists wait.
type slowList struct {
	*host.Driver
	asked chan struct{}
	go_   chan struct{}
}

func (d *slowList) List(ctx context.Context) ([]driver.Info, error) {
	select {
	case d.asked <- struct{}{}:
	default:
	}
	select {
	case <-d.go_:
	case <-ctx.Done():
	}
	return d.Driver.List(ctx)
}

// Strangers may ask for files with signatures: who waits until a sandbox is found is
// bounded, and the rest continues.
func TestFewWaitUntilTheSandboxOfASignatureIsFound(t *testing.T) {
	t.Parallel()
	d := &slowList{asked: make(chan struct{}, 1), go_: make(chan struct{})}
	s := serve(t, func(c *envd.Config) {
		d.Driver = proctest.Value(host.Open(host.Config{Dir: filepath.Join(t.TempDir(), "boxes"), Manager: c.Sandboxes.Default.Processes()}))(t)
		c.Sandboxes.Driver, c.Secret = d, protocol.NewSecret()
	})
	codes := make(chan int)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var all sync.WaitGroup
	ask := func() {
		all.Go(func() {
			res, err := client.Get("http://" + s.addr + "/files?path=/etc/hostname&signature=v1_x")
			if err != nil {
				t.Error(err)
				codes <- 0
				return
			}
			res.Body.Close()
			if res.StatusCode == http.StatusTooManyRequests && res.Header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			codes <- res.StatusCode
		})
	}
	const most = 64
	for range most + 10 {
		ask()
	}
	<-d.asked
	for range 10 {
		if code := <-codes; code != http.StatusTooManyRequests {
			t.Errorf("one too many: %d", code)
		}
	}
	if res, _ := s.do("GET", "/health", ""); res.StatusCode != http.StatusNoContent {
		t.Errorf("health: %s", res.Status)
	}
	close(d.go_)
	for range most {
		if code := <-codes; code != http.StatusUnauthorized {
			t.Errorf("one that waited: %d", code)
		}
	}
	all.Wait()
}
