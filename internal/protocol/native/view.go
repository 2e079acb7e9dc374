package native

import (
	"context"

	"connectrpc.com/connect"
	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/internal/view"
	"github.com/tend-run/tend/process"
)

// maxText bounds the text of one ViewResponse in bytes.
const maxText = 256 << 10

// views implements the ViewService. It holds no state.
type views struct{ processes }

func (s *views) View(ctx context.Context, req *connect.Request[tendv1.ViewRequest],
	stream *connect.ServerStream[tendv1.ViewResponse]) error {
	o, err := tendpb.ToViewOptions(req.Msg)
	if err != nil {
		return wireError(err)
	}
	p, err := s.find(ctx, req.Msg.GetProcess())
	if err != nil {
		return wireError(err)
	}
	out := &viewBatch{stream: stream}
	if err := view.Show(ctx, p, o, out.add); err != nil {
		return wireError(err)
	}
	return out.send()
}

// viewBatch joins neighbouring pieces of text: a filter makes one of each line.
type viewBatch struct {
	stream *connect.ServerStream[tendv1.ViewResponse]
	m      *tendv1.ViewResponse
}

func (b *viewBatch) add(it view.Item) error {
	if m := b.m; m != nil && it.Omitted == 0 && m.GetOmitted() == 0 && m.GetStream() == tendv1.Stream(it.Stream) &&
		m.GetTo() == it.From && tendpb.ToTime(m.GetTime()).Equal(it.Time) && len(m.GetText())+len(it.Text) <= maxText {
		m.Text, m.To = append(m.Text, it.Text...), it.To
		return nil
	}
	if err := b.send(); err != nil {
		return err
	}
	b.m = tendpb.ViewItem(it)
	return nil
}

func (b *viewBatch) send() error {
	if b.m == nil {
		return nil
	}
	m := b.m
	b.m = nil
	return b.stream.Send(m)
}

func (s *views) Grep(ctx context.Context, req *connect.Request[tendv1.GrepRequest],
	stream *connect.ServerStream[tendv1.GrepResponse]) error {
	o, err := tendpb.ToGrepOptions(req.Msg)
	if err != nil {
		return wireError(err)
	}
	p, err := s.find(ctx, req.Msg.GetProcess())
	if err != nil {
		return wireError(err)
	}
	err = view.Grep(ctx, p, o, func(m view.Match) error {
		return stream.Send(&tendv1.GrepResponse{Found: &tendv1.GrepResponse_Match_{Match: tendpb.Match(m)}})
	}, func(g process.Gap) error {
		return stream.Send(&tendv1.GrepResponse{Found: &tendv1.GrepResponse_Freed{Freed: &tendv1.Gap{Stream: tendv1.Stream(g.Stream),
			From: g.From, To: g.To}}})
	})
	if err != nil {
		return wireError(err)
	}
	return nil
}
