package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tend-run/tend/internal/view"
	"github.com/tend-run/tend/process"
)

type outputArgs struct {
	ID      string `json:"id"`
	Stream  string `json:"stream,omitempty" jsonschema:"stdout, stderr or pty. Default: all"`
	From    int64  `json:"from,omitempty" jsonschema:"byte offset to start at; needs stream"`
	Tail    bool   `json:"tail,omitempty" jsonschema:"only the end"`
	Grep    string `json:"grep,omitempty" jsonschema:"only lines matching this RE2 regexp"`
	Context int    `json:"context,omitempty" jsonschema:"lines around each match"`
	Raw     bool   `json:"raw,omitempty" jsonschema:"keep escape sequences"`
	Tokens  int    `json:"max_tokens,omitempty"`
	inSandbox
}

// streamNamed is the stream that a word names; 0: all.
func streamNamed(word string) (process.Stream, error) {
	switch word {
	case "":
		return 0, nil
	case "stdout":
		return process.Stdout, nil
	case "stderr":
		return process.Stderr, nil
	case "pty":
		return process.PTY, nil
	}
	return 0, &process.InvalidError{Field: "stream", Reason: fmt.Sprintf("is %.40q; stdout, stderr or pty are allowed, or none for all", word)}
}

func (f *Face) output(ctx context.Context, _ *sdk.CallToolRequest, c *call, a outputArgs) (*answer, error) {
	var n notes
	tokens := allowance(&n, a.Tokens)
	only, err := streamNamed(a.Stream)
	switch {
	case err != nil:
		return nil, err
	case a.From < 0:
		return nil, &process.InvalidError{Field: "from", Reason: fmt.Sprintf("is %d; an offset is 0 or more", a.From)}
	case a.From > 0 && only == 0:
		return nil, &process.InvalidError{Field: "from", Reason: "needs stream: each stream has offsets of its own"}
	}
	p, info, err := f.known(ctx, c, a.Sandbox, a.ID)
	if err != nil {
		return nil, err
	}
	if only != 0 {
		si, has := info.Stream(only)
		switch {
		case !has:
			return nil, &process.InvalidError{Field: "stream", Reason: fmt.Sprintf("is %s, which %s does not have; it has %s",
				only, info.ID, streamNames(&info))}
		case a.From > si.End:
			return nil, process.PastEnd(only, si.End, a.From)
		}
	}
	var from [4]int64
	from[only] = a.From
	head := share
	switch {
	case a.Tail:
		head = 0
	case a.From > 0:
		head = 100 // it reads on from there
	}
	title := fmt.Sprintf("%s %s\n", info.ID, state(&info, &outcome{met: true}, process.Until{}))
	room := func() int { return tokens*3 - cost(title) - cost(strings.Join(n, " ")) - 30 }
	var body string
	if a.Grep == "" {
		body, err = streamsText(ctx, p, &info, from, only, head, a.Raw, room())
	} else {
		body, err = grep(ctx, p, &a, only, from, &n, room)
	}
	if err != nil {
		return nil, err
	}
	if len(n) > 0 {
		body += "Note: " + strings.Join(n, " ") + "\n"
	}
	return &answer{title + body, facts(&info, nil), nil}, nil
}

func streamNames(info *process.Info) string {
	var names []string
	for _, s := range info.Streams {
		names = append(names, s.Stream.String())
	}
	return strings.Join(names, " and ")
}

// errEnough ends a search when no more can be shown.
var errEnough = errors.New("enough")

// maxGrepLine is what is shown of a long line, in bytes.
const maxGrepLine = 500

// grep shows the lines that match, with the stream, the number of the line and its offset.
func grep(ctx context.Context, p process.Process, a *outputArgs, only process.Stream, from [4]int64, n *notes,
	room func() int) (string, error) {
	o := view.GrepOptions{Pattern: a.Grep, From: from, StripANSI: !a.Raw, MaxLine: maxGrepLine}
	o.Before = clamp(n, "context", a.Context, 0, 0, 50)
	o.After = o.Before
	if only != 0 {
		o.Streams = []process.Stream{only}
	}
	var b strings.Builder
	left, found := room()-200, 0
	err := view.Grep(ctx, p, o, func(m view.Match) error {
		mark := ":"
		if m.Context {
			mark = "-"
		} else {
			found++
		}
		line := strings.ToValidUTF8(string(m.Text), "�")
		if m.Cut {
			line += "…"
		}
		line = fmt.Sprintf("%s %d@%d%s %s\n", m.Stream, m.Line, m.From, mark, line)
		if left -= cost(line); left < 0 {
			n.add("There may be more matches: call again with stream %s and from %d, or with more max_tokens.", m.Stream, m.From)
			return errEnough
		}
		b.WriteString(line)
		return nil
	}, func(g process.Gap) error {
		n.add("%s %d to %d is no longer kept and was not searched.", g.Stream, g.From, g.To)
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return "", err
	}
	if found == 0 && b.Len() == 0 {
		b.WriteString("(no line matches)\n")
	}
	return b.String(), nil
}
