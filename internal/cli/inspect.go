package cli

import (
	"context"

	"github.com/tend-run/tend/process"
)

type inspectCmd struct {
	inSandbox
	IDs []string `arg:"" name:"id" complete:"process" help:"The processes."`
}

// inspectFacts are all that is known of a process, what it was started with
// included. Environments hold secrets: no other verb shows them.
type inspectFacts struct {
	processFacts
	Spec specFacts `json:"spec"`
}

type specFacts struct {
	Env                map[string]string `json:"env"`     // laid over what inherit brings
	Inherit            string            `json:"inherit"` // user, daemon, none
	Timeout            float64           `json:"timeout_seconds"`
	TimeoutScope       string            `json:"timeout_scope"` // tree, leader, group
	KillWithoutReaders float64           `json:"kill_without_readers_seconds"`
	Limits             limitFacts        `json:"limits"`
	Retention          retentionFacts    `json:"retention"`
}

type limitFacts struct {
	Rlimits     []rlimitFacts `json:"rlimits,omitempty"`
	Nice        int           `json:"nice"`
	OOMScoreAdj int           `json:"oom_score_adj"`
	MemoryMax   int64         `json:"memory_max"` // bytes; 0: none, as below
	PidsMax     int64         `json:"pids_max"`
	CPUWeight   int64         `json:"cpu_weight"`
	CPUs        float64       `json:"cpus"`
}

type rlimitFacts struct {
	Resource int    `json:"resource"`
	Soft     uint64 `json:"soft"`
	Hard     uint64 `json:"hard"`
}

type retentionFacts struct {
	Limit  int64   `json:"limit"`       // bytes of each stream; 0: the daemon's default, as below
	Policy string  `json:"policy"`      // drop_oldest, block
	TTL    float64 `json:"ttl_seconds"` // once it has finished
	Sync   string  `json:"sync"`
}

// Ask prints an array, for one process, too, as docker inspect does.
func (c *inspectCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	all := []inspectFacts{}
	failed := d.each(ctx, c.IDs, func(p process.Process, id string) error {
		info, err := p.Info(ctx)
		if err != nil {
			return about(id, err)
		}
		all = append(all, inspectFacts{processFacts: factsOf(&info), Spec: specFactsOf(&info.Spec)})
		return nil
	})
	if err := printJSON(inv.out, all); err != nil {
		return err
	}
	return failed
}

func specFactsOf(s *process.Spec) specFacts {
	return specFacts{
		Env: noNull(s.Env), Inherit: oneOf(int(s.Inherit), "user", "daemon", "none"), Timeout: s.Timeout.Seconds(),
		TimeoutScope: oneOf(int(s.TimeoutScope), "tree", "leader", "group"), KillWithoutReaders: s.KillWithoutReaders.Seconds(),
		Limits: limitFacts{Nice: s.Limits.Nice, OOMScoreAdj: s.Limits.OOMScoreAdj, MemoryMax: s.Limits.MemoryMax,
			PidsMax: s.Limits.PidsMax, CPUWeight: s.Limits.CPUWeight, CPUs: s.Limits.CPUs,
			Rlimits: mapped(s.Limits.Rlimits, func(r *process.Rlimit) rlimitFacts { return rlimitFacts(*r) })},
		Retention: retentionFacts{Limit: s.Retention.Limit, Policy: oneOf(int(s.Retention.Policy), "drop_oldest", "block"),
			TTL: s.Retention.TTL.Seconds(), Sync: s.Retention.Sync.String()},
	}
}

// oneOf names a number; one from a later version has no name here.
func oneOf(n int, names ...string) string {
	if n < len(names) {
		return names[n]
	}
	return "unknown"
}
