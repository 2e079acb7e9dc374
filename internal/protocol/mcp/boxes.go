package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/process"
)

type sandboxArgs struct {
	Action   string `json:"action" jsonschema:"list, create, start, stop (its processes end, its files stay) or destroy"`
	Name     string `json:"name,omitempty" jsonschema:"or id"`
	Template string `json:"template,omitempty" jsonschema:"for create"`
}

// prepareTime is how long a creation waits for a template that the server builds itself.
const prepareTime = 50 * time.Second

// noteCall is the note of a sandbox that a call has made, with its name.
const noteCall = "mcp.call"

func (f *Face) sandbox(ctx context.Context, _ *sdk.CallToolRequest, c *call, a sandboxArgs) (*answer, error) {
	d := f.cfg.Driver
	if d == nil {
		return nil, errors.New("this server has no sandboxes")
	}
	switch a.Action {
	case "list":
		all, err := d.List(ctx)
		if err != nil {
			return nil, err
		}
		var b strings.Builder
		for i := range all {
			b.WriteString(sandboxLine(&all[i]))
		}
		if len(all) == 0 {
			b.WriteString("(none)\n")
		}
		return text("%s", cutTo(b.String(), maxTokens)), nil
	case "create":
		mine := c.name("sandbox", 26)
		if c.again {
			if s, info, err := f.sandboxOf(ctx, a.Name); err == nil && info.Notes[noteCall] == mine {
				return made(ctx, s)
			}
		}
		if a.Name == "" { // so that it is found when the call is made again
			a.Name = "mcp-" + c.name("name", 8)
			if s, info, err := f.sandboxOf(ctx, a.Name); err == nil && info.Notes[noteCall] == mine {
				return made(ctx, s)
			}
		}
		if prepare := f.cfg.Prepared[a.Template]; prepare != nil {
			building, stop := context.WithTimeout(ctx, prepareTime)
			err := prepare(building)
			stop()
			if err != nil {
				return nil, err
			}
		}
		s, err := d.Create(ctx, driver.Spec{Name: a.Name, Template: a.Template, Notes: map[string]string{noteCall: mine}})
		if err != nil {
			return nil, err
		}
		return made(ctx, s)
	case "start", "stop", "destroy":
	default:
		return nil, &process.InvalidError{Field: "action", Reason: fmt.Sprintf("is %.40q; list, create, start, stop or destroy are allowed",
			a.Action)}
	}
	s, info, err := f.sandboxOf(ctx, a.Name)
	if err != nil {
		if a.Action == "destroy" && c.again {
			return text("%s is destroyed.\n", a.Name), nil
		}
		return nil, err
	}
	done := "is ready"
	switch a.Action {
	case "start":
		err = s.Start(ctx)
	case "stop":
		done, err = "is stopped", s.Stop(ctx)
	case "destroy":
		done, err = "is destroyed", s.Destroy(ctx)
	}
	if err != nil {
		return nil, err
	}
	return text("%s %s.\n", info.Name, done), nil
}

func made(ctx context.Context, s driver.Sandbox) (*answer, error) {
	info, err := s.Info(ctx)
	if err != nil {
		return nil, err
	}
	return &answer{"created " + sandboxLine(&info) + "Give sandbox: " + info.Name + " to the other tools to work in it.\n",
		map[string]any{"id": info.ID, "name": info.Name}, nil}, nil
}

func sandboxLine(i *driver.Info) string {
	from := ""
	if i.Template != "" {
		from = ", from " + i.Template
	}
	return fmt.Sprintf("%s (id %s) %s, isolation %s%s, since %s\n", i.Name, i.ID, i.State, i.Isolation, from,
		i.Created.UTC().Format(time.RFC3339))
}

type serviceArgs struct {
	Action string `json:"action" jsonschema:"list, start, stop, restart or logs"`
	Name   string `json:"name,omitempty" jsonschema:"default: all"`
	Tokens int    `json:"max_tokens,omitempty"`
}
