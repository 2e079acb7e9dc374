package tend

import (
	"context"
	"fmt"
	"iter"
	"math"
	"time"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// ServiceFile is the text of a tend.yaml, with the data that it needs from its machine.
type ServiceFile struct {
	// Name in errors. "": tend.yaml.
	Name string
	// Dir is the absolute path of its directory on the daemon's machine.
	Dir  string
	Text []byte // at most 1 MiB
	// EnvFiles are the contents of the files that env_file names, by name.
	EnvFiles map[string][]byte
	// Env is the environment of the caller, for services that inherit it; it is stored
	// with them.
	Env map[string]string
	// Project whose services these are, of which there is one more if it is new; "": the one
	// whose services have names without a '/'. With one that is named and without a text, the
	// project is forgotten.
	Project string
}

// ServiceProject is the services of one file.
type ServiceProject struct {
	Name string
	File string // an absolute path
}

// ServicePhase is the phase of a service's life cycle.
type ServicePhase uint8

const (
	ServiceIdle      ServicePhase = iota // it is not wanted to run
	ServiceWaiting                       // for its dependencies, or for its time
	ServiceStarting                      //
	ServiceRunning                       //
	ServiceStopping                      // it was asked to end
	ServiceKilling                       // the rest of its tree is being killed
	ServicePausing                       // it waits for its next start
	ServiceCompleted                     // it ended with success and stays ended
	ServiceFailed                        // it is not restarted automatically, or not soon
)

func (p ServicePhase) String() string {
	return word("phase", p, "idle", "waiting", "starting", "running", "stopping", "killing", "pausing", "completed", "failed")
}

// Alive reports whether a process of the service may exist.
func (p ServicePhase) Alive() bool { return p >= ServiceStarting && p <= ServiceKilling }

// Service is a declared service at a moment.
type Service struct {
	Name  string
	Phase ServicePhase
	// Up: the service is wanted to run.
	Up bool
	// Ready: it runs, and its probes succeed.
	Ready bool
	// Why it is in this phase; may be empty.
	Why string
	// Process is its newest run; "": there was none, or tend did not start it. PID is its
	// pid while it may be alive, else 0.
	Process process.ID
	PID     int
	// Runs counts its starts, Restarts those that tend made by itself.
	Runs, Restarts int64
	// Exit is the exit of the newest run that has ended; nil: none has.
	Exit *process.Exit
	// Age is the time in its current phase, Next the time until the next planned action;
	// 0: nothing is planned.
	Age, Next time.Duration
	// Healing is its state for the healer, and Episode its newest repair; "": there was
	// none.
	Healing HealStatus
	Episode string
	// Failures is the number of failed probes in a row, while it is below the limit.
	Failures int
	// Sandbox is where it runs, by the name or ID in the file; "": it runs on the machine
	// itself, or the server is of an earlier version.
	Sandbox string
	// Sockets stay open from one run to the next, in the order of the file.
	Sockets []ServiceSocket
	// Adopted: the newest run is a process that tend did not start. Its output is not
	// available, and its exit status will be unknown.
	Adopted bool
	// AdoptedPIDFile or AdoptedPort is how it was found, according to the file; "" and 0:
	// somebody named its pid, or an earlier version adopted it.
	AdoptedPIDFile string
	AdoptedPort    int
	// Project that declares it. Name begins with it and a '/', except in one project.
	Project string
}

// ServiceSocket is a listening socket that tend passes to a service.
type ServiceSocket struct {
	// Name as LISTEN_FDNAMES has it.
	Name string
	// Address is IP:PORT, or unix: and an absolute path. Nothing listens there while the
	// service is stopped or has failed.
	Address string
}

// ApplyServices declares the services of a file. It changes only what differs from
// before: a running service restarts if its process would be different, a service that
// is no longer declared ends, and a new one waits for [Client.StartServices]. Other projects
// stay as they are. An invalid file is a [*process.InvalidError]. While services of the
// project run that another file has declared, the error is [process.ErrRunning].
func (c *Client) ApplyServices(ctx context.Context, f ServiceFile) error {
	req := &tendv1.ApplyServicesRequest{Text: f.Text, Name: f.Name, Dir: f.Dir, EnvFiles: f.EnvFiles, Env: f.Env, Project: f.Project}
	return c.aboutServices(ctx, c.call, checked("file", c.kept.Apply, req, nil))
}

// StartServices requests services and their dependencies; without names, all that are
// not disabled. It returns when the request is recorded; [Client.WatchServices] reports
// what follows. For an unknown name the error is [process.ErrNotFound].
func (c *Client) StartServices(ctx context.Context, names ...string) error {
	return c.StartProject(ctx, "", names...)
}

// StartProject is [Client.StartServices] within a project: names without a '/' are its own, and
// without names all of it are meant.
func (c *Client) StartProject(ctx context.Context, project string, names ...string) error {
	return c.aboutServices(ctx, c.call, checked("names", c.kept.Start, &tendv1.StartServicesRequest{Names: names, Project: project}, nil))
}

// StopServices ends services, their dependents first; without names, all.
func (c *Client) StopServices(ctx context.Context, names ...string) error {
	return c.StopProject(ctx, "", names...)
}

// StopProject is [Client.StopServices] within a project: names without a '/' are its own, and
// without names all of it are meant.
func (c *Client) StopProject(ctx context.Context, project string, names ...string) error {
	return c.aboutServices(ctx, c.call, checked("names", c.kept.Stop, &tendv1.StopServicesRequest{Names: names, Project: project}, nil))
}

// RestartServices ends services and starts them again. The call is not repeated if the
// answer is lost.
func (c *Client) RestartServices(ctx context.Context, names ...string) error {
	return c.RestartProject(ctx, "", names...)
}

// RestartProject is [Client.RestartServices] within a project: names without a '/' are its own, and
// without names all of it are meant.
func (c *Client) RestartProject(ctx context.Context, project string, names ...string) error {
	return c.aboutServices(ctx, c.once, checked("names", c.kept.Restart, &tendv1.RestartServicesRequest{Names: names, Project: project}, nil))
}

// AdoptService makes an existing process, which tend did not start, the process of a
// service that does not run. tend keeps the service running from then on. Nothing is
// done to the process. The call is not repeated if the answer is lost. Errors:
// process.ErrNotFound for an unknown service or pid, process.ErrRunning while the
// service runs, process.ErrPermission for a process that must not be adopted,
// *process.InvalidError for a service that cannot adopt one.
func (c *Client) AdoptService(ctx context.Context, name string, pid int) error {
	if pid <= 0 || pid > math.MaxInt32 {
		return &process.InvalidError{Field: "pid", Reason: fmt.Sprintf("is %d; 1 to %d are allowed", pid, math.MaxInt32)}
	}
	req := &tendv1.AdoptServiceRequest{Name: name, Pid: uint32(pid)}
	return c.aboutServices(ctx, c.once, checked("name", c.kept.Adopt, req, nil))
}

// Services returns all services, each after those that it depends on.
func (c *Client) Services(ctx context.Context) (all []Service, err error) {
	err = c.aboutServices(ctx, c.call, unary(c.kept.List, &tendv1.ListServicesRequest{}, func(m *tendv1.ListServicesResponse) error {
		all = toServices(m.GetServices())
		return nil
	}))
	return all, err
}

// ServiceProjects returns the projects whose services the daemon keeps.
func (c *Client) ServiceProjects(ctx context.Context) (all []ServiceProject, err error) {
	err = c.aboutServices(ctx, c.call, unary(c.kept.List, &tendv1.ListServicesRequest{}, func(m *tendv1.ListServicesResponse) error {
		for _, p := range m.GetProjects() {
			all = append(all, ServiceProject{tendpb.CleanName(p.GetName()), tendpb.CleanText(p.GetFile())})
		}
		return nil
	}))
	return all, err
}

// WatchServices yields all services, at first and again after changes; changes in quick
// succession are merged. It continues after lost connections until ctx ends. An error
// ends the sequence.
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
			return receive(ctx, c, c.kept.Watch, &tendv1.WatchServicesRequest{}, errAway, func(m *tendv1.WatchServicesResponse) error {
				a.progress()
				switch {
				case m.GetGoingAway():
					return errAway
				case m.GetHeartbeat():
				case !yield(toServices(m.GetServices()), nil):
					left = true
					return context.Canceled
				}
				return nil
			})
		})
		if !left {
			yield(nil, err)
		}
	}
}

func (c *Client) needsServices(ctx context.Context) error {
	return c.needs(ctx, (*tendv1.HelloResponse).GetServices, "keeps no services, or is")
}

// aboutServices runs a call about services, by call or once.
func (c *Client) aboutServices(ctx context.Context, run runs, f func(context.Context) error) error {
	if err := c.needsServices(ctx); err != nil {
		return err
	}
	return run(ctx, f)
}

func toServices(all []*tendv1.ServiceStatus) []Service {
	out := make([]Service, len(all))
	for i, m := range all {
		out[i] = Service{
			Name: tendpb.CleanName(m.GetName()), Phase: ServicePhase(max(0, m.GetPhase()-1)), Up: m.GetUp(), Ready: m.GetReady(),
			Why: tendpb.CleanText(m.GetWhy()),
			PID: int(m.GetPid()), Runs: m.GetRun(), Restarts: m.GetRestarts(), Exit: tendpb.ToExit(m.GetExit()),
			Age: m.GetAge().AsDuration(), Next: m.GetNext().AsDuration(),
			Healing: HealStatus(max(0, m.GetHealing())), Episode: tendpb.CleanName(m.GetEpisode()), Failures: int(m.GetFailures()),
			Sandbox: tendpb.CleanName(m.GetSandbox()), Adopted: m.GetAdopted(), AdoptedPIDFile: tendpb.CleanText(m.GetAdoptedPidFile()),
			AdoptedPort: int(min(m.GetAdoptedPort(), 65535)), Project: tendpb.CleanName(m.GetProject()),
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
