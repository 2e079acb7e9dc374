package config

import (
	"maps"
	"slices"
	"strings"
)

// Bounds of a file.
const (
	MaxBytes    = 1 << 20 // of the file, and of each file that env_file names
	MaxServices = 1000
	// Of all services together: variables of env files, each time that a service has them, and bytes
	// of these files.
	MaxFileVars  = 1 << 18
	MaxFileBytes = 64 << 20
	MaxProblems  = 50 // more are not reported
)

// Config is a file, with the defaults filled in. It is not changed any more once it
// is returned.
type Config struct {
	Preset   string              `key:"preset" enum:"default,shmastra" default:"default" doc:"The set of defaults: shmastra has those of the shmastra-cloud healer."`
	Sandbox  string              `key:"sandbox" doc:"Name or ID of the daemon's sandbox for services that name none. Default: they run on the machine itself."`
	Services map[string]*Service `key:"services" required:"yes" doc:"The services by name."`
	Healer   *Healer             `key:"healer" doc:"The healer: how a service is repaired."`

	// Prefix begins the names of the services, before a '/'; "": nothing does.
	Prefix string `key:"-"`
}

// Within returns the services as those of a project beside others: with its prefix in their names.
func (c *Config) Within(prefix string) *Config {
	if prefix == "" {
		return c
	}
	out := *c
	out.Prefix, out.Services = prefix, map[string]*Service{}
	for name, s := range c.Services {
		one := *s
		one.Name, one.DependsOn = prefix+"/"+name, slices.Clone(s.DependsOn)
		for i := range one.DependsOn {
			one.DependsOn[i].Service = prefix + "/" + one.DependsOn[i].Service
		}
		out.Services[one.Name] = &one
	}
	if c.Healer != nil {
		h := *c.Healer
		h.Service, out.Healer = prefix+"/"+c.Target(), &h
	}
	return &out
}

// SplitName returns the prefix of the name of a service, and its name in the file.
func SplitName(name string) (prefix, short string) {
	if prefix, short, ok := strings.Cut(name, "/"); ok {
		return prefix, short
	}
	return "", name
}

// Names returns the names of the services, sorted.
func (c *Config) Names() []string { return slices.Sorted(maps.Keys(c.Services)) }

// Service is one program that is kept running.
type Service struct {
	// Name is the key in Config.Services.
	Name string `key:"-"`

	Command   Command           `key:"command" required:"unless image" doc:"What runs: a list of words, or a line for /bin/sh -c. With image: a list comes behind the image's entrypoint; default: what the image says."`
	Cwd       string            `key:"cwd" doc:"Working directory. Relative: to the directory of the file. Default: that directory. In a sandbox: an absolute path inside; default: that of the sandbox."`
	Env       map[string]string `key:"env" names:"env" doc:"Environment variables; they override env_file."`
	EnvFile   Strings           `key:"env_file" doc:"Files with lines NAME=value, read together with this file; later ones override earlier ones."`
	Inherit   string            `key:"inherit" enum:"all,none" default:"all" doc:"The inherited environment, which env overrides: that of tend up, stored with the service, or nothing. In a sandbox: that of the sandbox, or with none no variables of the user there."`
	User      string            `key:"user" doc:"User name, uid or uid:gid. Default: the user of the daemon. In a sandbox: of an account there; default: the user of the sandbox."`
	Sandbox   string            `key:"sandbox" doc:"Name or ID of the daemon's sandbox in which it runs, with its probes and hooks. Default: the sandbox of the file, otherwise the machine itself."`
	Image     string            `key:"image" doc:"The OCI image whose files it has: it runs in a sandbox of its own, which tend up makes of the image, and fetches the image if it is not there. Not with sandbox."`
	Adopt     *Adopt            `key:"adopt" doc:"An existing process, which tend did not start, to use as the service while it runs: tend up looks for it before it starts another one. Not in a sandbox."`
	Sockets   Sockets           `key:"sockets" doc:"Listening sockets by name, which stay open from one run to the next: 127.0.0.1:PORT, [::1]:PORT, 0.0.0.0:PORT, or unix:PATH. The process gets them as descriptors 3, 4 and so on in the order of the file, as systemd passes them (LISTEN_FDS). Not in a sandbox."`
	DependsOn Dependencies      `key:"depends_on" doc:"Services that it needs before it starts: a list of names, or a condition for each name."`
	Restart   Restart           `key:"restart" doc:"When and how it is restarted: only a policy, or all settings."`
	Health    *Probe            `key:"health" doc:"One probe for all: startup until it first succeeds, readiness and liveness from then on."`
	Startup   *Probe            `key:"startup" doc:"Until it succeeds, readiness and liveness are not probed; it must succeed within start."`
	Readiness *Probe            `key:"readiness" doc:"Whether the service can be used; a failure never restarts it."`
	Liveness  *Probe            `key:"liveness" doc:"Whether the service works; it is restarted when the probe fails."`
	Stop      Stop              `key:"stop" doc:"How it is ended."`
	Log       Log               `key:"log" doc:"How much output is kept, and when a quiet log means that it is stuck."`
	Pressure  *Pressure         `key:"pressure" doc:"Whether shortage of memory, descriptors, processes or disk space is measured. Default: no; yes with the preset shmastra."`
	Watch     *Watch            `key:"watch" doc:"Files whose change restarts it. For a service in a sandbox: files inside."`
	Schedule  *Schedule         `key:"schedule" doc:"It runs only at these times: only a cron expression, or all settings."`
	Hooks     Hooks             `key:"hooks" doc:"Commands at points of its life cycle, each in its directory, with its environment and as its user. Its limits do not apply to them."`
	Limits    Limits            `key:"limits" doc:"Limits on its resources, for all its processes together unless stated otherwise."`
	Forks     bool              `key:"forks" default:"false" doc:"The command ends once the service runs in the background; the service lives as long as any process of its tree."`
	Disabled  bool              `key:"disabled" default:"false" doc:"It is started only by name."`
}

// Restart says when a service is started again. The first restart within a window
// is made at once; each further one waits longer.
type Restart struct {
	Policy         string   `key:"policy" short:"yes" enum:"always,on-failure,never" doc:"After which exits it is restarted: all, only failures, or none. Default: always; never with a schedule."`
	SuccessCodes   []int    `key:"success_codes" default:"0" min:"0" max:"255" doc:"Exit codes that count as success."`
	PermanentCodes []int    `key:"permanent_codes" min:"0" max:"255" doc:"Exit codes after which a restart cannot help; it is not restarted, whatever the policy. Many programs use 78."`
	Delay          Duration `key:"delay" default:"100ms" shmastra:"2s" max:"1h" doc:"Wait before the second restart within the window."`
	Factor         float64  `key:"factor" default:"2" min:"1" max:"10" doc:"Factor by which each further wait grows."`
	MaxDelay       Duration `key:"max_delay" default:"30s" max:"24h" doc:"Maximum wait."`
	Jitter         float64  `key:"jitter" default:"0.25" min:"0" max:"1" doc:"Each wait is shortened or lengthened at random by up to this fraction of it."`
	Max            int      `key:"max" default:"5" min:"0" max:"10000" doc:"Restarts allowed within the window, however long each run lasted; after one more it has failed. 0: no limit."`
	Within         Duration `key:"within" default:"1m" min:"1s" max:"24h" doc:"Length of the window."`
	Retry          Duration `key:"retry" default:"5m" max:"24h" doc:"How long after a failure it is tried again, with a new window. 0: only on request, or when a watched file changes."`
}

// Probe asks a service how it is. Exactly one of HTTP, TCP, Exec and Log is set. A
// process that answers must belong to the service, unless Anyone is set.
type Probe struct {
	HTTP *HTTP   `key:"http" doc:"A URL that answers: http://HOST:PORT/PATH, :PORT/PATH, or with more settings."`
	TCP  Address `key:"tcp" doc:"A port that accepts connections: PORT or HOST:PORT."`
	Exec Command `key:"exec" doc:"A command that exits with 0, in the directory and with the environment of the service."`
	Log  Pattern `key:"log" doc:"A line of output since the start that matches this RE2 expression. For startup and readiness; once seen, it stays valid."`

	Anyone bool `key:"anyone" default:"false" doc:"The answering process need not belong to the service, for example if its command is only the client of a container engine."`

	Interval Duration `key:"interval" default:"2s" shmastra:"20s" min:"50ms" max:"1h" doc:"Time from the start of a probe to the start of the next one."`
	Timeout  Duration `key:"timeout" default:"1s" shmastra:"5s" min:"10ms" max:"10m" doc:"How long an answer may take."`
	Failures int      `key:"failures" default:"3" shmastra:"2" min:"1" max:"1000" doc:"Number of failures in a row after which the probe has failed."`
	Retry    Duration `key:"retry" shmastra:"10s" max:"1h" doc:"Interval after a failure. Default: half of interval."`
	Start    Duration `key:"start" default:"1m" shmastra:"2m" max:"24h" doc:"How long it may take until a startup probe, or health, first succeeds. 0: no limit."`
}

// Where is what the probe asks for by the network, as a URL or an address; "": nothing.
func (p *Probe) Where() string {
	if p.HTTP != nil {
		return string(p.HTTP.URL)
	}
	return string(p.TCP)
}

// HTTP is a request whose answer is asked for. Redirections are not followed.
type HTTP struct {
	URL     URL               `key:"url" short:"yes" required:"yes" doc:"http://HOST:PORT/PATH, or :PORT/PATH."`
	Headers map[string]string `key:"headers" names:"header" doc:"Headers of the request."`
	Status  []int             `key:"status" min:"100" max:"599" doc:"Statuses that count as success. Default: 200 to 299."`
	Body    Pattern           `key:"body" doc:"An RE2 expression that the first 64 KiB of the answer must match."`
}

// Stop says how a service is ended: a signal to its whole tree, and SIGKILL to what
// is left after a time.
type Stop struct {
	Signal  Signal   `key:"signal" short:"yes" default:"TERM" doc:"The signal that asks it to end."`
	Timeout Duration `key:"timeout" default:"10s" max:"1h" doc:"Time before the rest of its tree is killed."`
}

// Log says what becomes of output. The file has defaults where there is one ([decoder.checkLog]).
type Log struct {
	Limit   Size     `key:"limit" min:"64KiB" max:"1TiB" doc:"Bytes of stdout and of stderr that are kept. Default: the daemon's."`
	File    string   `json:",omitempty" key:"file" doc:"A file to which all output is written as well, over all runs, on this machine. Relative: to cwd; of a service in a sandbox: to the directory of the file."`
	Rotate  Size     `json:",omitempty" key:"rotate" max:"1TiB" doc:"Size above which the file gets the name FILE.1, that one FILE.2, and so on. 0: never. Default: 10MiB."`
	Keep    int      `json:",omitempty" key:"keep" max:"1000" doc:"How many of those are kept. Default: 5."`
	Date    bool     `json:",omitempty" key:"date" default:"false" doc:"Each line of the file begins with the time at which it arrived."`
	Pattern Pattern  `key:"pattern" shmastra:"Bundling" doc:"RE2 expression: if the last line of output matches, and no further output comes for quiet, it is stuck."`
	Quiet   Duration `key:"quiet" default:"20s" min:"100ms" max:"24h" doc:"How long no output may come after a line that matches pattern."`
	Stuck   string   `key:"stuck" enum:"restart,report" default:"restart" doc:"What a stuck log causes: a restart, or only a report."`
}

// Pressure says when a service is short of something. A part is one of the limit.
type Pressure struct {
	On          bool     `key:"on" short:"yes" default:"true" doc:"Whether anything is measured."`
	Memory      float64  `key:"memory" default:"0.9" min:"0" max:"1" doc:"Fraction of its memory limit, or of the machine's memory, above which memory is short; reclaimable memory does not count. 0 here and below: not measured."`
	Descriptors float64  `key:"descriptors" default:"0.9" min:"0" max:"1" doc:"Fraction of the descriptors that one of its processes may have open."`
	Pids        float64  `key:"pids" default:"0.9" min:"0" max:"1" doc:"Fraction of the processes and threads that its control group may have."`
	Disk        Size     `key:"disk" default:"200MiB" max:"1PiB" doc:"Minimum free space on the disks of its directory and its output; on a small disk 5 %."`
	Looks       int      `key:"looks" default:"4" min:"1" max:"100" doc:"Number of measurements above a level after which it is short."`
	Of          int      `key:"of" default:"5" shmastra:"4" min:"1" max:"100" doc:"Number of newest measurements that are considered for this."`
	Interval    Duration `key:"interval" default:"2s" shmastra:"15s" min:"100ms" max:"1h" doc:"Time from one measurement to the next; a quarter of it while a resource is nearly short."`
	Stalls      bool     `key:"stalls" default:"true" shmastra:"false" doc:"Memory is short at once when the kernel reports that the service waits for it (PSI), or when it would be used up within 30 s. false: only levels count, and measurements are never more frequent."`
	Restart     bool     `key:"restart" default:"false" shmastra:"true" doc:"It is restarted when it is short of a resource that it uses up itself; otherwise this is only reported."`
}

// Watch restarts a service when files change.
type Watch struct {
	Paths  Strings  `key:"paths" short:"yes" required:"yes" doc:"Globs (** for any directories) below the service's directory."`
	Ignore []string `key:"ignore" doc:"Globs of files that do not count, besides .git, node_modules and *.log."`
	Delay  Duration `key:"delay" default:"300ms" min:"10ms" max:"1h" doc:"How long nothing may change before the restart."`
}

// Schedule starts a service at given times.
type Schedule struct {
	Cron    Cron   `key:"cron" short:"yes" required:"yes" doc:"Minute, hour, day of month, month, day of week; or @hourly, @daily, @every 10m and the like."`
	Zone    Zone   `key:"zone" default:"Local" doc:"Time zone: Europe/Berlin, UTC, Local."`
	Overlap string `key:"overlap" enum:"skip,restart" default:"skip" doc:"What happens at a scheduled time while it still runs."`
}

// Adopt names the process that a service may be already. Exactly one of PIDFile and Port is
// set.
type Adopt struct {
	PIDFile string `key:"pid_file" doc:"The file to which the program writes its pid, read as the service's user. Relative: to the service's cwd. A file that is older than the process is stale."`
	Port    int    `key:"port" min:"1" max:"65535" doc:"The TCP port on which it listens."`
}

// Hooks of a service. Each is started once for a run.
type Hooks struct {
	PreStart  *Hook `key:"pre_start" doc:"Before each start. If it fails, the start has failed."`
	PostStart *Hook `key:"post_start" doc:"Once, when the service first becomes ready after its start. Nothing waits for it."`
	PreStop   *Hook `key:"pre_stop" doc:"Before the signal that asks it to end, while it runs. If it fails, the service is ended nevertheless."`
	PostStop  *Hook `key:"post_stop" doc:"After each run, however it ended, when no process of it is left. The next start waits for it."`
}

// Hook is a command at a point in the life of a service. What it leaves behind is killed.
type Hook struct {
	Command Command  `key:"command" short:"yes" required:"yes" doc:"What runs: a list of words, or a line for /bin/sh -c."`
	Timeout Duration `key:"timeout" default:"30s" min:"100ms" max:"1h" doc:"Time after which it is killed and has failed."`
}

// Limits of a service.
type Limits struct {
	Memory    Size    `key:"memory" min:"1MiB" max:"1PiB" doc:"Bytes of memory."`
	Pids      int     `key:"pids" min:"1" max:"4194304" doc:"Processes and threads."`
	CPUWeight int     `key:"cpu_weight" min:"1" max:"10000" doc:"Weight for CPU time when it is short; the default of others is 100."`
	CPUs      float64 `key:"cpus" min:"0.01" max:"4096" doc:"Most processors that it may use; 0.5 is half of one."`
	Files     int     `key:"files" min:"8" max:"1073741816" doc:"Open files of each process (RLIMIT_NOFILE)."`
	Core      Size    `key:"core" max:"1PiB" doc:"Bytes of a core file (RLIMIT_CORE)."`
	Nice      int     `key:"nice" min:"-20" max:"19" doc:"Priority."`
	OOMScore  int     `key:"oom_score" min:"-1000" max:"1000" doc:"How soon the kernel kills it when memory runs out."`
}

// Healer says what may be done to repair a service.
type Healer struct {
	Service   string   `key:"service" doc:"The service that is healed. Default: the only one there is."`
	Root      string   `key:"root" default:"." doc:"Directory of the project. Relative: to the directory of the file. For a service in a sandbox: an absolute path inside; default: the cwd of the service."`
	Protected []string `key:"protected" doc:"Globs below root of files that the healer must not change."`
	Data      []string `key:"data" doc:"Globs below root of files that the service itself writes; they are neither rolled back nor committed."`
	Show      []string `key:"show" doc:"Files and directories of the machine, by absolute paths, that the service and commands of a model see when a repair is tried, read-only; beside the project, programs and what PATH names."`
	Pass      []string `key:"pass" doc:"What the service reaches when a repair is tried, which otherwise reaches nothing: HOST:PORT (127.0.0.1:5432, api.example.com:443), also for installs if it is elsewhere, and absolute paths of Unix sockets of the machine; at most 8."`
	LLM       *LLM     `key:"llm" doc:"The model to ask when no rule helps. Default: none."`
	Attempts  int      `key:"attempts" default:"3" min:"1" max:"10" doc:"Attempts of the model for one fault."`
	Steps     int      `key:"steps" default:"40" min:"1" max:"1000" doc:"Requests to the model in one attempt."`
	Tokens    int      `key:"tokens" default:"500000" min:"1000" max:"100000000" doc:"Tokens that the model may read and write in one attempt."`
	Wall      Duration `key:"wall" default:"10m" min:"10s" max:"24h" doc:"How long one repair may take as a whole."`
	PerDay    int      `key:"per_day" default:"20" min:"1" max:"10000" doc:"Repairs within 24 hours."`
	Hold      Duration `key:"hold" default:"3s" min:"100ms" max:"1h" doc:"How long the service must be healthy, as one process, to count as repaired. The time is longer if the service lived longer before it failed."`
	Verify    *Hook    `key:"verify" doc:"What must end with 0 before a change by a model counts as a repair, such as tests or a type check. It runs in the cwd of the service, where the change is tried: beside the service, which is ready, and without a network."`
	Commit    bool     `key:"commit" default:"true" doc:"Commit a repair that helped, and only that, if there is git."`
	EndOthers bool     `key:"end_port_holders" default:"false" doc:"End the process that holds the service's port, even if it does not belong to the service."`
	Report    *Report  `key:"report" doc:"The URL to which the status is sent. Default: none."`
}

// LLM names a model.
type LLM struct {
	Provider    string  `key:"provider" enum:"anthropic,openai" default:"anthropic" doc:"The protocol of the provider."`
	BaseURL     string  `key:"base_url" doc:"The base URL. Default: that of the provider, or of its environment variable (ANTHROPIC_BASE_URL, OPENAI_BASE_URL)."`
	Model       string  `key:"model" doc:"The model. Default: claude-sonnet-4-6, with the provider anthropic."`
	ReviewModel string  `key:"review_model" doc:"The model that reviews a change; it may be a cheaper one. Default: none; then only rules review it."`
	KeyEnv      string  `key:"key_env" doc:"Environment variable of tend up that has the key. Default: ANTHROPIC_API_KEY or OPENAI_API_KEY."`
	Prices      *Prices `key:"prices" doc:"What a million tokens cost. Default: none; then costs are not shown."`
}

// Prices are those of a million tokens.
type Prices struct {
	Input      float64 `key:"input" min:"0" max:"1000000" doc:"Tokens that are read."`
	Output     float64 `key:"output" min:"0" max:"1000000" doc:"Tokens that are written."`
	CacheRead  float64 `key:"cache_read" min:"0" max:"1000000" doc:"Tokens that are read from the provider's cache."`
	CacheWrite float64 `key:"cache_write" min:"0" max:"1000000" doc:"Tokens that are written to it."`
}

// Report says where a status is sent: POST, JSON {status, error, sequence}.
type Report struct {
	URL    string `key:"url" short:"yes" required:"yes" doc:"http:// or https://"`
	KeyEnv string `key:"key_env" default:"MASTRA_AUTH_TOKEN" doc:"Environment variable of tend up with the token, which is sent as Authorization: Bearer."`
}

// Condition says how far a dependency must have come.
type Condition uint8

const (
	Ready     Condition = iota // its probes succeed; without one, it has started
	Started                    // it runs
	Completed                  // it has ended with success
	LogLine                    // a line of its output has matched
)

var conditionNames = [...]string{"ready", "started", "completed", "log"}

func (c Condition) String() string { return conditionNames[c] }

// Dependency is what a service needs of another one.
type Dependency struct {
	Service   string
	Condition Condition
	Log       string // RE2 expression, for LogLine
	// Restart: a restart of the other one restarts this one, too.
	Restart bool
}

// Dependencies in the order of names.
type Dependencies []Dependency

// Order returns the services so that each comes after those that it depends on; of
// two that do not, the one with the lesser name comes first.
func (c *Config) Order() []string {
	var order []string
	done := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		s := c.Services[name]
		if done[name] || s == nil {
			return
		}
		done[name] = true
		for _, d := range s.DependsOn {
			visit(d.Service)
		}
		order = append(order, name)
	}
	for _, name := range c.Names() {
		visit(name)
	}
	return order
}

// Target returns the service that the healer is for; "": none.
func (c *Config) Target() string {
	if c.Healer == nil {
		return ""
	}
	if c.Healer.Service == "" && len(c.Services) == 1 {
		return c.Names()[0]
	}
	return c.Healer.Service
}
