package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// keyCmd is the part of the grammar about virtual keys.
type keyCmd struct {
	Ls     keyLsCmd     `cmd:"" default:"" aliases:"list" help:"List the keys (tend key alone does the same)."`
	Create keyCreateCmd `cmd:"" aliases:"new,add" help:"Create a key and print it: it is not shown again."`
	Revoke keyRevokeCmd `cmd:"" aliases:"rm,remove,delete" help:"Revoke keys."`
}

type keyCreateCmd struct {
	Name     string   `arg:"" help:"Its name: letters, digits, ., _ and -."`
	Provider []string `placeholder:"PATTERN" help:"It may use these providers; * is any text. Repeatable. Default: all."`
	Model    []string `placeholder:"PATTERN" help:"It may use these models; * is any text. Repeatable. Default: all."`
	Requests int      `name:"requests-per-minute" placeholder:"N" help:"How many requests it may make in a minute. Default: no limit."`
	Tokens   int64    `name:"tokens-per-day" placeholder:"N" help:"How many tokens it may use in a day (UTC), for questions and answers together. Default: no limit."`
	Sandbox  string   `placeholder:"SANDBOX" complete:"sandbox" help:"A sandbox that is kept alive while the key is used."`
}

func (c *keyCreateCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	rules := tend.KeyRules{Providers: c.Provider, Models: c.Model, RequestsPerMinute: c.Requests, TokensPerDay: c.Tokens}
	if c.Sandbox != "" {
		sandbox, err := d.Client.Sandbox(ctx, c.Sandbox)
		if err != nil {
			return about(c.Sandbox, err)
		}
		info, err := sandbox.Info(ctx)
		if err != nil {
			return about(c.Sandbox, err)
		}
		rules.Sandbox = info.ID
	}
	key, secret, err := d.CreateKey(ctx, c.Name, rules)
	if err != nil {
		return explainKey(c.Name, err)
	}
	if !inv.flags.JSON {
		inv.note("this is the only time that the key is shown")
	}
	return inv.answer(printJSON, struct {
		keyFacts
		Key string `json:"key"`
	}{keyFactsOf(&key), secret}, secret)
}

type keyLsCmd struct {
	Quiet bool `short:"q" help:"Print names only."`
}

func (c *keyLsCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	all, err := d.Keys(ctx)
	if err != nil {
		return err
	}
	rows := [][]string{{"NAME", "ID", "MAY USE", "REQUESTS", "TOKENS", "USED", "STATUS", "AGE"}}
	for i := range all {
		k := &all[i]
		tokens, used, status := fmt.Sprint(k.Tokens), "-", k.Status
		if k.Rules.TokensPerDay > 0 {
			tokens += fmt.Sprintf(" of %d", k.Rules.TokensPerDay)
		}
		if !k.Used.IsZero() {
			used = age(time.Since(k.Used)) + " ago"
		}
		if k.Reported.IsZero() {
			status = "-"
		} else if k.Error != "" {
			status += ": " + k.Error
		}
		rows = append(rows, []string{printable(k.Name), printable(k.ID), printable(mayUse(&k.Rules)), fmt.Sprint(k.Requests),
			tokens, used, printable(status), age(time.Since(k.Created))})
	}
	return inv.printList(mapped(all, keyFactsOf), rows, c.Quiet)
}

// mayUse is what a key may be used for, in a few words.
func mayUse(r *tend.KeyRules) string {
	words := append(append([]string{}, r.Providers...), r.Models...)
	if len(words) == 0 {
		return "all"
	}
	return strings.Join(words, ",")
}

type keyRevokeCmd struct {
	Names []string `arg:"" name:"key" help:"The keys: names or IDs."`
}

func (c *keyRevokeCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	return each(c.Names, func(name string) error {
		if err := d.RevokeKey(ctx, name); err != nil {
			return explainKey(name, err)
		}
		return inv.answer(printJSONLine, map[string]string{"name": name}, name)
	})
}

// explainKey says of an error about a key what to do.
func explainKey(name string, err error) error {
	switch {
	case errors.Is(err, process.ErrNotFound):
		return &keyError{fmt.Sprintf("there is no key %.80q; tend key shows all", name), err}
	case errors.Is(err, process.ErrExists):
		return &keyError{fmt.Sprintf("there is a key %.80q already; revoke it with tend key revoke, or use another name", name), err}
	}
	return err
}

// keyFacts is a key as JSON.
type keyFacts struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	Providers []string   `json:"providers"`
	Models    []string   `json:"models"`
	PerMinute int        `json:"requests_per_minute"` // 0: no bound
	PerDay    int64      `json:"tokens_per_day"`      // 0: no bound
	Sandbox   string     `json:"sandbox"`
	Created   time.Time  `json:"created"`
	Requests  int64      `json:"requests"` // of today
	Tokens    int64      `json:"tokens"`
	Used      *time.Time `json:"used"`
	Status    string     `json:"status"`
	Error     string     `json:"error,omitempty"`
	Reported  *time.Time `json:"reported"`
}

func keyFactsOf(k *tend.Key) keyFacts {
	return keyFacts{
		ID: k.ID, Name: k.Name, Providers: notNull(k.Rules.Providers), Models: notNull(k.Rules.Models), PerMinute: k.Rules.RequestsPerMinute,
		PerDay:  k.Rules.TokensPerDay,
		Sandbox: k.Rules.Sandbox, Created: k.Created.UTC(), Requests: k.Requests, Tokens: k.Tokens, Used: timeOrNull(k.Used),
		Status: k.Status, Error: k.Error, Reported: timeOrNull(k.Reported),
	}
}
