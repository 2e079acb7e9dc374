package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

type downCmd struct {
	projectFlag
	Forget bool     `help:"Also forget the project: its services are declared no more."`
	Names  []string `arg:"" name:"service" optional:"" complete:"service" help:"Only these services and their dependents. Default: all."`
}

// Ask ends services and waits until they have ended.
func (c *downCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	if c.Forget && len(c.Names) > 0 {
		return usageError("--forget is for a whole project, and goes with no service")
	}
	k, err := c.kept(ctx, d, len(c.Names) > 0)
	if err != nil {
		return err
	}
	if err := d.StopProject(ctx, k.project, c.Names...); err != nil {
		return serviceError(err)
	}
	done := inv.progress("ending the services")
	defer done()
	for all, err := range k.watch(ctx) {
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(all, func(s tend.Service) bool {
			return (len(c.Names) == 0 || slices.Contains(c.Names, s.Name)) && (s.Up || s.Phase.Alive())
		}) {
			done()
			if c.Forget {
				err = k.forget(ctx)
			}
			if err == nil && inv.flags.JSON {
				return inv.printServices(all, false)
			}
			return err
		}
	}
	return ctx.Err()
}

// servicesCmd is the part of the grammar about declared services that there are.
type servicesCmd struct {
	Ls      servicesLsCmd      `cmd:"" default:"" aliases:"list,ps,status" help:"List the services (tend services alone does the same)."`
	Start   servicesStartCmd   `cmd:"" help:"Start declared services and their dependencies."`
	Restart servicesRestartCmd `cmd:"" help:"End services and start them again."`
}

type servicesLsCmd struct {
	projectFlag
	All   bool     `short:"a" help:"Those of all projects."`
	Names []string `arg:"" name:"service" optional:"" complete:"service" help:"Only these. Default: all."`
}

func (c *servicesLsCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	if c.All && c.Project != "" {
		return usageError("--all and -p are one or the other")
	}
	k, err := c.kept(ctx, d, true)
	if err != nil {
		return err
	}
	if c.All {
		k.project = ""
	}
	if c.Project != "" {
		all, err := d.ServiceProjects(ctx)
		if err == nil && !slices.Contains(mapped(all, nameOfProject), c.Project) {
			err = unknownProject(c.Project, all)
		}
		if err != nil {
			return err
		}
	}
	all, err := k.list(ctx)
	if err != nil {
		return err
	}
	columns := k.several && k.project == ""
	if len(c.Names) == 0 {
		return inv.printServices(all, columns)
	}
	var some []tend.Service
	for _, name := range c.Names {
		s := serviceNamed(all, name)
		if s == nil {
			return noService(name, all)
		}
		some = append(some, *s)
	}
	return inv.printServices(some, columns)
}

type servicesStartCmd struct {
	projectFlag
	Names []string `arg:"" name:"service" complete:"service" help:"The services."`
}

func (c *servicesStartCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	k, err := c.kept(ctx, d, true)
	if err != nil {
		return err
	}
	if err := d.StartProject(ctx, k.project, c.Names...); err != nil {
		return serviceError(err)
	}
	return inv.actedOnServices(c.Names)
}

type servicesRestartCmd struct {
	projectFlag
	Names []string `arg:"" name:"service" complete:"service" help:"The services."`
}

func (c *servicesRestartCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	k, err := c.kept(ctx, d, true)
	if err != nil {
		return err
	}
	if err := d.RestartProject(ctx, k.project, c.Names...); err != nil {
		return serviceError(err)
	}
	return inv.actedOnServices(c.Names)
}

type adoptCmd struct {
	Name string `arg:"" name:"service" complete:"service" help:"The service. It must be declared and must not run."`
	PID  int    `arg:"" name:"pid" help:"The pid of the process, which tend did not start."`
}

func (c *adoptCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	if err := d.AdoptService(ctx, d.full(ctx, c.Name), c.PID); err != nil {
		return serviceError(err)
	}
	return inv.actedOnServices([]string{c.Name})
}

// actedOnServices prints what something was done to.
func (inv *invocation) actedOnServices(names []string) error {
	for _, name := range names {
		if err := inv.answer(printJSONLine, map[string]string{"service": name}, name); err != nil {
			return err
		}
	}
	return nil
}

func serviceNamed(all []tend.Service, name string) *tend.Service {
	if i := slices.IndexFunc(all, func(s tend.Service) bool { return s.Name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

func noService(name string, all []tend.Service) error {
	if len(all) == 0 {
		return &keyError{fmt.Sprintf("there is no service %.80q, and no other; tend up declares those of a tend.yaml", name), process.ErrNotFound}
	}
	names := mapped(all, func(s *tend.Service) string { return s.Name })
	return &keyError{fmt.Sprintf("there is no service %.80q; there are %s", name,
		printable(strings.Join(names[:min(len(names), maxNamed)], ", "))), process.ErrNotFound}
}

// restartService restarts the service that a word for tend restart means: the name of
// one, or a process of one, be it the newest run or not, but no hook. Beside a service no copy of a run is
// started, also while another run takes its place. A service that was adopted has no process
// of its name but of earlier runs. false: it means none.
func (d *daemon) restartService(ctx context.Context, word string, p process.Process) (bool, error) {
	all, err := d.Services(ctx)
	if errors.Is(err, process.ErrUnsupported) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	of := ""
	word = d.full(ctx, word)
	if p != nil {
		in, err := p.Info(ctx)
		if err != nil {
			return false, err
		}
		if in.Spec.Labels[process.LabelHook] == "" {
			of = in.Spec.Labels[process.LabelService]
		}
	}
	for _, s := range all {
		if (p == nil || s.Adopted) && s.Name == word || p != nil && s.Name == of {
			return true, serviceError(d.RestartServices(ctx, s.Name))
		}
	}
	return false, nil
}

// noneOf is why there is no process for a word, where that is a service that runs: tend did
// not start what that is.
func (d *daemon) noneOf(ctx context.Context, word string, err error) error {
	all, serr := d.Services(ctx)
	if serr != nil {
		return err
	}
	if s := serviceNamed(all, d.full(ctx, word)); s != nil && s.Adopted && s.Phase.Alive() {
		return fmt.Errorf("the service is pid %d, which tend did not start: its output goes where it went before, and tend down %s ends it: %w",
			s.PID, printable(word), err)
	}
	return err
}

// serviceOf returns the service whose newest run a process is, if somebody wants that to
// run; "": it is no service's, or that cannot be found out.
func (inv *invocation) serviceOf(ctx context.Context, d *daemon, p process.Process) string {
	if inv.sandbox != "" {
		return ""
	}
	in, err := p.Info(ctx)
	if err != nil || in.Spec.Labels[process.LabelService] == "" {
		return ""
	}
	all, err := d.Services(ctx)
	if err != nil {
		return ""
	}
	for _, s := range all {
		if s.Process == p.ID() && s.Up && s.Phase.Alive() {
			return s.Name
		}
	}
	return ""
}

// noteService says that what was ended comes again.
func (inv *invocation) noteService(service, id string) {
	if service != "" {
		inv.note("%s is a process of the service %s, which is started again as its restart policy says; tend down %s ends the service",
			id, printable(service), printable(service))
	}
}

// serviceFacts is a service as JSON.
type serviceFacts struct {
	Name  string `json:"name"`
	Phase string `json:"phase"` // idle, waiting, starting, running, stopping, killing, pausing, completed, failed
	Up    bool   `json:"up"`    // somebody wants it to run
	Ready bool   `json:"ready"`
	Why   string `json:"why,omitempty"`
	// Process of its newest run, for tend logs and the like.
	Process  process.ID `json:"process,omitempty"`
	PID      int        `json:"pid,omitempty"`
	Runs     int64      `json:"runs"`
	Restarts int64      `json:"restarts"` // by itself
	// Exit is the newest that there was.
	Exit *serviceExit `json:"exit,omitempty"`
	// Seconds in this phase, and until something happens by itself.
	Age  float64 `json:"age_seconds"`
	Next float64 `json:"next_seconds,omitempty"`
	// What the healer knows of it: running, suspected, healing, verifying, ready, broken;
	// and its newest repair.
	Healing string `json:"healing,omitempty"`
	Episode string `json:"episode,omitempty"`
	// Sandbox that it runs in; "": the machine itself.
	Sandbox string `json:"sandbox,omitempty"`
	// Sockets that stay open over its restarts, in the order of the file.
	Sockets []serviceSocket `json:"sockets,omitempty"`
	// Adopted: tend did not start what runs.
	Adopted bool `json:"adopted,omitempty"`
	// By what the file says that it is found; without them its pid was named.
	AdoptedPIDFile string `json:"adopted_pid_file,omitempty"`
	AdoptedPort    int    `json:"adopted_port,omitempty"`
	// Project that declares it.
	Project string `json:"project,omitempty"`
}

type serviceSocket struct {
	Name    string `json:"name"`
	Address string `json:"address"` // IP:PORT, or unix:PATH
}

type serviceExit struct {
	Code   *int   `json:"code"` // null if a signal ended it, or if it is not known
	Signal string `json:"signal,omitempty"`
	Cause  string `json:"cause"`
}

func serviceFactsOf(s *tend.Service) serviceFacts {
	f := serviceFacts{
		Name: s.Name, Phase: s.Phase.String(), Up: s.Up, Ready: s.Ready, Why: s.Why, Process: s.Process, PID: s.PID,
		Runs: s.Runs, Restarts: s.Restarts, Age: s.Age.Seconds(), Next: s.Next.Seconds(),
		Healing: s.Healing.String(), Episode: s.Episode, Sandbox: s.Sandbox, Adopted: s.Adopted, AdoptedPIDFile: s.AdoptedPIDFile,
		AdoptedPort: s.AdoptedPort, Project: s.Project,
	}
	for _, one := range s.Sockets {
		f.Sockets = append(f.Sockets, serviceSocket(one))
	}
	if e := s.Exit; e != nil {
		f.Exit = &serviceExit{Cause: e.Cause.String()}
		switch {
		case e.Signal != 0:
			f.Exit.Signal = signalName(e.Signal)
		case e.Cause != process.CauseLost && e.Code >= 0:
			f.Exit.Code = &e.Code
		}
	}
	return f
}

// printServices writes a table, or JSON. The table has a column for projects if they are of several,
// and one for sandboxes and one for sockets where a service has any; they are the last, so that a narrow terminal shows why
// a service is as it is.
func (inv *invocation) printServices(all []tend.Service, projects bool) error {
	if inv.flags.JSON {
		return printJSON(inv.out, mapped(all, serviceFactsOf))
	}
	boxed := slices.ContainsFunc(all, func(s tend.Service) bool { return s.Sandbox != "" })
	listens := slices.ContainsFunc(all, func(s tend.Service) bool { return len(s.Sockets) > 0 })
	rows := [][]string{{"NAME", "STATE", "PID", "RESTARTS", "AGE", "WHY"}}
	if projects {
		rows[0] = append(rows[0], "PROJECT")
	}
	if boxed {
		rows[0] = append(rows[0], "SANDBOX")
	}
	if listens {
		rows[0] = append(rows[0], "SOCKETS")
	}
	for _, s := range all {
		pid := "-"
		if s.PID > 0 {
			pid = fmt.Sprint(s.PID)
		}
		row := []string{printable(s.Name), serviceState(&s), pid, fmt.Sprint(s.Restarts), age(s.Age), cmp.Or(printable(s.Why), "-")}
		if projects {
			row = append(row, printable(s.Project))
		}
		if boxed {
			row = append(row, cmp.Or(printable(s.Sandbox), "-"))
		}
		if listens {
			var at []string
			for _, one := range s.Sockets {
				at = append(at, printable(one.Address))
			}
			row = append(row, cmp.Or(strings.Join(at, " "), "-"))
		}
		rows = append(rows, row)
	}
	return inv.printRows(rows, func(n int) string {
		if all[n].Phase == tend.ServiceFailed {
			return red
		}
		return ""
	})
}

// serviceState is the column STATE of a service.
func serviceState(s *tend.Service) string {
	state := s.Phase.String()
	switch {
	case s.Ready:
		state = "ready"
	case s.Phase == tend.ServiceRunning:
		state = "not ready"
	}
	switch s.Healing {
	case tend.HealSuspected, tend.HealHealing, tend.HealVerifying, tend.HealBroken:
		state += ", " + s.Healing.String()
	}
	return state
}

// configCmd is about the file that declares services. It needs no daemon.
type configCmd struct {
	Check  configCheckCmd  `cmd:"" help:"Report the errors in a file of services."`
	Schema configSchemaCmd `cmd:"" help:"Print the JSON schema of tend.yaml, for editors." nojson:"it prints a JSON schema in any case"`
}

type configCheckCmd struct {
	File string `arg:"" optional:"" default:"tend.yaml" complete:"files" help:"The file. Default: tend.yaml."`
}

func (c *configCheckCmd) Run(ctx context.Context, inv *invocation) error {
	_, declared, err := inv.loadConfig(ctx, c.File)
	if err != nil {
		return err
	}
	names := declared.Names()
	return inv.answer(printJSON, map[string]any{"file": c.File, "services": names}, c.File+" is well: "+listed(names))
}

type configSchemaCmd struct{}

func (*configSchemaCmd) Run(_ context.Context, inv *invocation) error {
	text, err := config.Schema()
	if err != nil {
		return err
	}
	_, err = inv.out.Write(text)
	return err
}
