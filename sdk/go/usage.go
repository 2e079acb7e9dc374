package tend

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
)

// Usage is what the machine, a sandbox or a service uses, or has used.
type Usage struct {
	Kind        string // "machine", "sandbox" or "service"
	ID          string // of a sandbox
	Name        string
	CPUs        float64 // that it may use; 0: not known, as of the past
	MemoryTotal int64   // bytes that it may use; 0: not known, as of the past
	// Points are the oldest first. A time without one was not measured: nothing ran, or no server did.
	Points []UsagePoint
}

// UsagePoint is what was used for some time.
type UsagePoint struct {
	Time   time.Time // the end of that time
	CPU    float64   // processors; 0.5 is a half of one
	Memory int64     // bytes; of five minutes the most
	// Received and Sent are bytes a second; nil: not known, as of a service on the machine.
	Received, Sent *int64
}

// Usage measures what is used now, by the machine, each service and each sandbox, or by those that
// are named: "machine", a service, a sandbox by its ID or name. It takes a second.
func (c *Client) Usage(ctx context.Context, names ...string) ([]Usage, error) {
	return c.usage(ctx, &tendv1.UsageRequest{Names: names})
}

// UsageHistory returns what was used in a time until now, of at most a day: of an hour or less each
// minute, else each five minutes.
func (c *Client) UsageHistory(ctx context.Context, since time.Duration, names ...string) ([]Usage, error) {
	return c.usage(ctx, &tendv1.UsageRequest{Names: names, Since: durationpb.New(since)})
}

func (c *Client) usage(ctx context.Context, req *tendv1.UsageRequest) (all []Usage, err error) {
	err = c.call(ctx, checked("names", c.overview.Usage, req, func(m *tendv1.UsageResponse) error {
		for _, u := range m.GetUsages() {
			one := Usage{u.GetKind(), u.GetId(), u.GetName(), u.GetCpus(), u.GetMemoryTotal(), nil}
			for _, p := range u.GetPoints() {
				one.Points = append(one.Points, UsagePoint{tendpb.ToTime(p.GetTime()), float64(p.GetCpu()) / 1000, p.GetMemory(), p.Received, p.Sent})
			}
			all = append(all, one)
		}
		return nil
	}))
	return all, knownCall(err, "does not measure what is used, and is")
}
