package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/process"
)

func (f *Face) service(ctx context.Context, _ *sdk.CallToolRequest, c *call, a serviceArgs) (*answer, error) {
	if f.cfg.Services == nil {
		return nil, errors.New("this server keeps no services")
	}
	if len(a.Name) > process.MaxNameLen {
		return nil, &process.InvalidError{Field: "name", Reason: fmt.Sprintf("has %d bytes; the limit is %d", len(a.Name), process.MaxNameLen)}
	}
	var names []string
	if a.Name != "" {
		names = []string{a.Name}
	}
	var err error
	switch a.Action {
	case "list":
	case "logs":
		return f.serviceLogs(ctx, c, &a)
	case "start":
		err = f.cfg.Services.Start(ctx, "", names)
	case "stop":
		err = f.cfg.Services.Stop(ctx, "", names)
	case "restart":
		if a.Name == "" {
			return nil, &process.InvalidError{Field: "name", Reason: "is empty; name the service to restart"}
		}
		if run := f.runOf(ctx, a.Name); !c.marked || run == 0 || run == c.from[0] {
			err = f.cfg.Services.Restart(ctx, "", names)
		} // else this call, whose answer was lost, has restarted it
	default:
		return nil, &process.InvalidError{Field: "action", Reason: fmt.Sprintf("is %.40q; list, start, stop, restart or logs are allowed",
			a.Action)}
	}
	if err != nil {
		return nil, err
	}
	kept, err := f.cfg.Services.List(ctx)
	if err != nil {
		return nil, err
	}
	all := kept.GetServices()
	var n notes
	left := allowance(&n, a.Tokens)*3 - 200
	head := ""
	for _, p := range kept.GetProjects() {
		head += "declared in " + p.GetFile() + "\n"
	}
	return listing{
		head: head, lines: len(all), line: func(i int) string { return serviceLine(all[i]) },
		none: "(none; tend up declares them)\n", more: "%d more are left out.",
	}.answer(n, left), nil
}

// runOf is the number of the newest run of a service; 0: it is not known.
func (f *Face) runOf(ctx context.Context, name string) int64 {
	all, err := f.cfg.Services.List(ctx)
	if err != nil {
		return 0
	}
	for _, s := range all.GetServices() {
		if s.GetName() == name {
			return s.GetRun()
		}
	}
	return 0
}

func serviceLine(s *tendv1.ServiceStatus) string {
	phase := strings.ToLower(strings.TrimPrefix(s.GetPhase().String(), "SERVICE_PHASE_"))
	line := s.GetName() + " " + phase
	if s.GetReady() {
		line += ", ready"
	}
	if s.GetRestarts() > 0 {
		line += fmt.Sprintf(", restarted %d times", s.GetRestarts())
	}
	if s.GetWhy() != "" {
		line += ": " + oneLine(s.GetWhy(), 200)
	}
	if s.GetProcess() != "" {
		line += " (process " + s.GetProcess()
		if s.GetSandbox() != "" {
			line += " in sandbox " + s.GetSandbox()
		}
		line += ")"
	}
	return line + "\n"
}

// serviceLogs shows the end of what the newest run of a service has written.
func (f *Face) serviceLogs(ctx context.Context, c *call, a *serviceArgs) (*answer, error) {
	all, err := f.cfg.Services.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range all.GetServices() {
		switch {
		case s.GetName() != a.Name:
		case s.GetProcess() == "":
			return text("%s has not run yet.\n", a.Name), nil
		default:
			return f.output(ctx, nil, c, outputArgs{ID: s.GetProcess(), Tail: true, Tokens: a.Tokens, inSandbox: inSandbox{s.GetSandbox()}})
		}
	}
	return nil, &process.InvalidError{Field: "name", Reason: fmt.Sprintf("is %.100q, and there is no such service; list has them", a.Name)}
}
