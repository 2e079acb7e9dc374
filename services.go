package tend

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"time"

	"connectrpc.com/connect"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// ServiceFile is the text of a tend.yaml, with all that it needs of the machine where
// it is.
type ServiceFile struct {
	// Name in errors. "": tend.yaml.
	Name string
	// Dir is the absolute path of its directory on the daemon's machine.
	Dir  string
	Text []byte // at most 1 MiB
	// EnvFiles are the contents of the files that env_file names, by the names there.
	EnvFiles map[string][]byte
	// Env is for the services that inherit the environment of whoever applies the file,
	// and is kept with them.
	Env map[string]string
}

// ServicePhase is where a service is in its life.
type ServicePhase uint8

const (
	ServiceIdle      ServicePhase = iota // nobody wants it to run
	ServiceWaiting                       // for what it depends on, or for its time
	ServiceStarting                      //
	ServiceRunning                       //
	ServiceStopping                      // it was asked to end
	ServiceKilling                       // what is left of its tree is being killed
	ServicePausing                       // it will be started again
	ServiceCompleted                     // it ended with success, and stays so
	ServiceFailed                        // it is not started again by itself, or not soon
)

var servicePhases = [...]string{"idle", "waiting", "starting", "running", "stopping", "killing", "pausing", "completed", "failed"}

func (p ServicePhase) String() string {
	if int(p) < len(servicePhases) {
		return servicePhases[p]
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

// Alive reports whether a process of the service may exist.
func (p ServicePhase) Alive() bool { return p >= ServiceStarting && p <= ServiceKilling }

// Service is a declared service at a moment.
type Service struct {
	Name  string
	Phase ServicePhase
	// Up: somebody wants it to run.
	Up bool
	// Ready: it runs, and its probes say that it can be used.
	Ready bool
	// Why it is in this phase; may be empty.
	Why string
	// Process of its newest run; "": there was none, or tend did not start it. PID while it
	// may live, else 0.
	Process process.ID
	PID     int
	// Runs is how often it was started, Restarts how often by itself.
	Runs, Restarts int64
	// Exit is how the newest run that ended did; nil: none has.
	Exit *process.Exit
	// Age is how long it has been in its phase, Next how long until something happens
	// by itself; 0: nothing is planned.
	Age, Next time.Duration
	// Healing is what the healer knows of it, and Episode its newest repair; "": there was
	// none.
	Healing HealStatus
	Episode string
	// Failures of its probes in a row, while they do not count yet.
	Failures int
	// Sandbox that it runs in, by the name or ID that the file gives; "": it runs on the
	// machine itself, or the server is of a former version.
	Sandbox string
	// Sockets that stay open from one run to the next, in the order of the file.
	Sockets []ServiceSocket
	// Adopted: the newest run is a process that tend did not start. There is no output of
	// it, and its exit status will not be known.
	Adopted bool
	// AdoptedPIDFile or AdoptedPort is by what the file says that it is found; "" and 0:
	// somebody has named its pid, or a former version has adopted it.
	AdoptedPIDFile string
	AdoptedPort    int
}

// ServiceSocket is a listening socket that a service is given.
type ServiceSocket struct {
	// Name as LISTEN_FDNAMES has it.
	Name string
	// Address is IP:PORT, or unix: and an absolute path. Nothing listens there while the
	// service is stopped or has failed.
	Address string
}

// ApplyServices declares the services of a file. What differs from before is changed,
// and nothing else: a service whose process would be another restarts if it runs, one
// that is not declared any more ends, a new one waits for [Client.StartServices]. A
// file that is not accepted is a [*process.InvalidError]; while services of another
// file run it is [process.ErrRunning].
func (c *Client) ApplyServices(ctx context.Context, f ServiceFile) error {
	req := &tendv1.ApplyServicesRequest{Text: f.Text, Name: f.Name, Dir: f.Dir, EnvFiles: f.EnvFiles, Env: f.Env}
	if err := sendable("file", req); err != nil {
		return err
	}
	if err := c.needsServices(ctx); err != nil {
		return err
	}
	return c.call(ctx, unary(c.kept.Apply, req, nil))
}

// StartServices asks for services, and for those that they depend on; no names: for all
// that are not disabled. It returns when that is written down: [Client.WatchServices]
// tells what becomes of them. An unknown name is [process.ErrNotFound].
func (c *Client) StartServices(ctx context.Context, names ...string) error {
	req := &tendv1.StartServicesRequest{Names: names}
	if err := c.sendsNames(ctx, names); err != nil {
		return err
	}
	return c.call(ctx, unary(c.kept.Start, req, nil))
}

// StopServices ends services, those that depend on them first; no names: all.
func (c *Client) StopServices(ctx context.Context, names ...string) error {
	req := &tendv1.StopServicesRequest{Names: names}
	if err := c.sendsNames(ctx, names); err != nil {
		return err
	}
	return c.call(ctx, unary(c.kept.Stop, req, nil))
}

// RestartServices ends services and starts them again. It is not repeated when the
// answer is lost.
func (c *Client) RestartServices(ctx context.Context, names ...string) error {
	req := &tendv1.RestartServicesRequest{Names: names}
	if err := c.sendsNames(ctx, names); err != nil {
		return err
	}
	return c.once(ctx, unary(c.kept.Restart, req, nil))
}

// AdoptService has a service that does not run be a process that is there already, and that
// tend did not start: it is kept running from then on. Nothing is done to the process. It is
// not repeated when the answer is lost. Errors: process.ErrNotFound for an unknown service
// or pid, process.ErrRunning while the service runs, process.ErrPermission for a process
// that must not be adopted, *process.InvalidError for a service that cannot adopt one.
func (c *Client) AdoptService(ctx context.Context, name string, pid int) error {
	if pid <= 0 || pid > math.MaxInt32 {
		return &process.InvalidError{Field: "pid", Reason: fmt.Sprintf("is %d; 1 to %d are allowed", pid, math.MaxInt32)}
	}
	req := &tendv1.AdoptServiceRequest{Name: name, Pid: uint32(pid)}
	if err := sendable("name", req); err != nil {
		return err
	}
	if err := c.needsServices(ctx); err != nil {
		return err
	}
	return c.once(ctx, unary(c.kept.Adopt, req, nil))
}

func (c *Client) sendsNames(ctx context.Context, names []string) error {
	if err := sendable("names", &tendv1.StartServicesRequest{Names: names}); err != nil {
		return err
	}
	return c.needsServices(ctx)
}

// Services returns all services, each after those that it depends on.
func (c *Client) Services(ctx context.Context) ([]Service, error) {
	if err := c.needsServices(ctx); err != nil {
		return nil, err
	}
	var all []Service
	err := c.call(ctx, unary(c.kept.List, &tendv1.ListServicesRequest{}, func(m *tendv1.ListServicesResponse) error {
		all = toServices(m.GetServices())
		return nil
	}))
	return all, err
}

// WatchServices gives all services, and again after changes; changes that follow each
// other closely come together. It goes on over lost connections until ctx ends. An
// error is the last that comes.
func (c *Client) WatchServices(ctx context.Context) iter.Seq2[[]Service, error] {
	return func(yield func([]Service, error) bool) {
		if err := c.needsServices(ctx); err != nil {
			yield(nil, err)
			return
		}
		ctx, cancel := c.stream(ctx)
		defer cancel(nil)
		left := false
		err := c.repeat(ctx, "watch services", func(error) bool { return left }, func(a *attempts) error {
			return c.watchServices(ctx, a, func(all []Service) bool {
				left = !yield(all, nil)
				return !left
			})
		})
		if !left {
			yield(nil, causeOf(ctx, err))
		}
	}
}

// watchServices receives one stream to its end, which is an error always.
func (c *Client) watchServices(ctx context.Context, a *attempts, take func([]Service) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := c.watchSilence(cancel)
	defer silence.stop()
	stream, err := c.kept.Watch(ctx, connect.NewRequest(&tendv1.WatchServicesRequest{}))
	if err != nil {
		return causeOf(ctx, err)
	}
	defer stream.Close()
	for stream.Receive() {
		silence.heard()
		a.progress()
		switch m := stream.Msg(); {
		case m.GetGoingAway():
			return errAway
		case m.GetHeartbeat():
		case !take(toServices(m.GetServices())):
			return context.Canceled
		}
		silence.heard() // the caller's time is not the server's
	}
	return cmp.Or(causeOf(ctx, stream.Err()), error(errAway))
}

// needsServices fails on a server of a former version.
func (c *Client) needsServices(ctx context.Context) error {
	if c.keeps.Load() {
		return nil
	}
	if err := c.call(ctx, c.hello); err != nil {
		return err
	}
	if !c.keeps.Load() {
		return fmt.Errorf("%w: the server keeps no services, or is of a former version: tend upgrade replaces it", process.ErrUnsupported)
	}
	return nil
}

func toServices(all []*tendv1.ServiceStatus) []Service {
	out := make([]Service, len(all))
	for i, m := range all {
		out[i] = Service{
			Name: tendpb.CleanName(m.GetName()), Phase: ServicePhase(max(0, m.GetPhase()-1)), Up: m.GetUp(), Ready: m.GetReady(), Why: tendpb.CleanText(m.GetWhy()),
			PID: int(m.GetPid()), Runs: m.GetRun(), Restarts: m.GetRestarts(), Exit: tendpb.ToExit(m.GetExit()),
			Age: m.GetAge().AsDuration(), Next: m.GetNext().AsDuration(),
			Healing: HealStatus(max(0, m.GetHealing())), Episode: tendpb.CleanName(m.GetEpisode()), Failures: int(m.GetFailures()),
			Sandbox: tendpb.CleanName(m.GetSandbox()), Adopted: m.GetAdopted(), AdoptedPIDFile: tendpb.CleanText(m.GetAdoptedPidFile()), AdoptedPort: int(min(m.GetAdoptedPort(), 65535)),
		}
		for _, one := range m.GetSockets() {
			out[i].Sockets = append(out[i].Sockets, ServiceSocket{tendpb.CleanName(one.GetName()), tendpb.CleanText(one.GetAddress())})
		}
		if id := process.ID(m.GetProcess()); id.Validate() == nil {
			out[i].Process = id
		}
	}
	return out
}
