package e2bapi

import (
	"encoding/json"
	"net/netip"
	"slices"
	"time"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// clientID stands where the original names the machine of a sandbox.
const clientID = "tend"

// sandbox is the answer to all that makes one ready.
type sandbox struct {
	TemplateID         string  `json:"templateID"`
	SandboxID          string  `json:"sandboxID"`
	ClientID           string  `json:"clientID"`
	EnvdVersion        string  `json:"envdVersion"`
	Alias              string  `json:"alias,omitempty"`
	EnvdAccessToken    string  `json:"envdAccessToken"`
	TrafficAccessToken *string `json:"trafficAccessToken"`
	Domain             *string `json:"domain"`
}

// listed is a sandbox in a list.
type listed struct {
	TemplateID   string            `json:"templateID"`
	SandboxID    string            `json:"sandboxID"`
	ClientID     string            `json:"clientID"`
	Alias        string            `json:"alias,omitempty"`
	StartedAt    string            `json:"startedAt"`
	EndAt        string            `json:"endAt"`
	CPUCount     int64             `json:"cpuCount"`
	MemoryMB     int64             `json:"memoryMB"`
	DiskSizeMB   int64             `json:"diskSizeMB"`
	Metadata     map[string]string `json:"metadata"`
	State        string            `json:"state"` // running, paused
	EnvdVersion  string            `json:"envdVersion"`
	VolumeMounts []volumeMount     `json:"volumeMounts"`
}

type detail struct {
	listed
	EnvdAccessToken     string    `json:"envdAccessToken"`
	Domain              *string   `json:"domain"`
	AllowInternetAccess bool      `json:"allowInternetAccess"`
	Network             network   `json:"network"`
	Lifecycle           lifecycle `json:"lifecycle"`
}

type network struct {
	AllowOut           []string `json:"allowOut,omitempty"`
	DenyOut            []string `json:"denyOut,omitempty"`
	AllowPublicTraffic bool     `json:"allowPublicTraffic"`
	MaskRequestHost    string   `json:"maskRequestHost,omitempty"`
	HTTPSPorts         []int    `json:"httpsPorts,omitempty"`
}

type lifecycle struct {
	AutoResume bool   `json:"autoResume"`
	OnTimeout  string `json:"onTimeout"` // kill, pause
}

// forkResult has one of the two.
type forkResult struct {
	Sandbox *sandbox   `json:"sandbox,omitempty"`
	Error   *wireError `json:"error,omitempty"`
}

type wireError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// createRequest is the body of a creation, of both generations; "secure" of the
// older one is always so here.
type createRequest struct {
	TemplateID          string            `json:"templateID"`
	Timeout             *int64            `json:"timeout"` // seconds
	Metadata            map[string]string `json:"metadata"`
	EnvVars             map[string]string `json:"envVars"`
	AutoPause           bool              `json:"autoPause"`
	AutoPauseMemory     *bool             `json:"autoPauseMemory"`
	AutoResume          *autoResume       `json:"autoResume"`
	AllowInternetAccess *bool             `json:"allow_internet_access"`
	Network             networkRequest    `json:"network"`

	// MCP needs nothing from the server: the SDK itself starts the gateway of the template
	// mcp-gateway, by a command.
	MCP          json.RawMessage `json:"mcp"`
	IAM          json.RawMessage `json:"iam"`
	VolumeMounts []volumeMount   `json:"volumeMounts"`
}

type autoResume struct {
	Enabled bool `json:"enabled"`
}

// networkRequest is the network of a creation, and the body of a change of it.
type networkRequest struct {
	AllowOut           []string        `json:"allowOut"`
	DenyOut            []string        `json:"denyOut"`
	AllowPublicTraffic *bool           `json:"allowPublicTraffic"`
	AllowInternet      *bool           `json:"allow_internet_access"` // of a change
	Rules              json.RawMessage `json:"rules"`
	EgressProxy        json.RawMessage `json:"egressProxy"`
	MaskRequestHost    string          `json:"maskRequestHost"`
	HTTPSPorts         []int           `json:"httpsPorts"`
	DNSServers         json.RawMessage `json:"dnsServers"`
}

func (n *networkRequest) refuse() error {
	return refuseFields(
		foreign{"network.rules", n.Rules, "use allowOut and denyOut"},
		foreign{"network.egressProxy", n.EgressProxy, "set the proxy's variables in envVars"},
		foreign{"network.dnsServers", n.DNSServers, "names are looked up by the resolver of the server's machine"},
	)
}

// network of the driver. E2B's "no access to the internet" is a denial of everything,
// beside which allowOut still counts.
func (n *networkRequest) network(internet *bool) driver.Network {
	next := driver.Network{Allow: n.AllowOut, Deny: n.DenyOut, Public: n.AllowPublicTraffic == nil || *n.AllowPublicTraffic}
	if internet != nil && !*internet {
		next.Deny = append([]string{everything}, next.Deny...)
	}
	return next
}

// domainsNeedDeny has the words of the original: programs show them to people.
const domainsNeedDeny = "When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' (\"0.0.0.0/0\") in deny out to block all " +
	"other traffic."

// checkRules refuses what the original refuses, so that what works here works there.
func checkRules(n *driver.Network) error {
	isDomain := func(rule string) bool {
		_, err := netip.ParseAddr(rule)
		_, cidr := netip.ParsePrefix(rule)
		return err != nil && cidr != nil
	}
	if i := slices.IndexFunc(n.Deny, isDomain); i >= 0 {
		return badRequest("invalid denied CIDR %.100s; denyOut takes addresses and CIDRs", n.Deny[i])
	}
	if slices.ContainsFunc(n.Allow, isDomain) && !slices.Contains(n.Deny, everything) {
		return badRequest(domainsNeedDeny)
	}
	return nil
}

// spec is what the driver is asked for, without a template.
func (c *createRequest) spec(timeout time.Duration) (driver.Spec, error) {
	spec := driver.Spec{
		Isolation: driver.IsolationFull, Env: c.EnvVars, Metadata: c.Metadata, Network: c.Network.network(c.AllowInternetAccess),
		Wake: c.AutoResume != nil && c.AutoResume.Enabled, Notes: map[string]string{protocol.NoteSecure: "yes"},
		Volumes: mountsFor(c.VolumeMounts),
	}
	err := refuseFields(foreign{"iam", c.IAM, "give variables in envVars"})
	if err == nil {
		err = c.Network.refuse()
	}
	if err == nil {
		err = checkRules(&spec.Network)
	}
	if err == nil {
		err = c.Network.serve(spec.Notes)
	}
	if err != nil {
		return spec, err
	}
	if c.AutoPause {
		spec.AtDeadline = driver.ActionPause
		spec.FilesAlone = c.AutoPauseMemory != nil && !*c.AutoPauseMemory
	}
	spec.Deadline, err = until(c.Timeout, timeout)
	return spec, err
}
