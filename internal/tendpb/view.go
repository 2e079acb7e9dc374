package tendpb

import (
	"bytes"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/view"
	"github.com/tend-run/tend/process"
)

// ViewRequest converts to a message.
func ViewRequest(by process.Selector, o *view.Options) *tendv1.ViewRequest {
	return &tendv1.ViewRequest{
		Process: Selector(by), Streams: streamNames(o.Streams), From: Offsets(o.From),
		Head: viewAmount(o.Head), Tail: viewAmount(o.Tail), StripAnsi: o.StripANSI, MaxLine: uint32(o.MaxLine), Times: o.Times,
	}
}

func viewAmount(a view.Amount) *tendv1.ViewRequest_Amount {
	return &tendv1.ViewRequest_Amount{Bytes: a.Bytes, Lines: a.Lines}
}

// ToViewOptions converts from a message.
func ToViewOptions(m *tendv1.ViewRequest) (o view.Options, err error) {
	o = view.Options{
		Head:      view.Amount{Bytes: m.GetHead().GetBytes(), Lines: m.GetHead().GetLines()},
		Tail:      view.Amount{Bytes: m.GetTail().GetBytes(), Lines: m.GetTail().GetLines()},
		StripANSI: m.GetStripAnsi(), MaxLine: int(m.GetMaxLine()), Times: m.GetTimes(),
	}
	if o.Streams, err = toStreamNames(m.GetStreams()); err != nil {
		return o, err
	}
	if o.From, err = ToOffsets("from", m.GetFrom()); err != nil {
		return o, err
	}
	return o, o.Validate()
}

// ViewItem converts to a message, which keeps a copy of the text.
func ViewItem(it view.Item) *tendv1.ViewResponse {
	return &tendv1.ViewResponse{Stream: tendv1.Stream(it.Stream), From: it.From, To: it.To, Text: bytes.Clone(it.Text),
		Omitted: tendv1.Omitted(it.Omitted), Time: Time(it.Time)}
}

// ToViewItem converts from a message.
func ToViewItem(m *tendv1.ViewResponse) view.Item {
	return view.Item{Stream: process.Stream(m.GetStream()), From: m.GetFrom(), To: m.GetTo(), Text: m.GetText(),
		Omitted: view.Reason(m.GetOmitted()), Time: ToTime(m.GetTime())}
}

// GrepRequest converts to a message.
func GrepRequest(by process.Selector, o *view.GrepOptions) *tendv1.GrepRequest {
	return &tendv1.GrepRequest{
		Process: Selector(by), Pattern: o.Pattern, Streams: streamNames(o.Streams), From: Offsets(o.From),
		Limit: o.Limit, StripAnsi: o.StripANSI, MaxLine: uint32(o.MaxLine),
		Invert: o.Invert, Before: uint32(o.Before), After: uint32(o.After),
	}
}

// ToGrepOptions converts from a message.
func ToGrepOptions(m *tendv1.GrepRequest) (o view.GrepOptions, err error) {
	o = view.GrepOptions{Pattern: m.GetPattern(), Limit: m.GetLimit(), StripANSI: m.GetStripAnsi(), MaxLine: int(m.GetMaxLine())}
	o.Invert, o.Before, o.After = m.GetInvert(), int(m.GetBefore()), int(m.GetAfter())
	if o.Streams, err = toStreamNames(m.GetStreams()); err != nil {
		return o, err
	}
	o.From, err = ToOffsets("from", m.GetFrom())
	return o, err
}

// Match converts to a message, which keeps a copy of the text.
func Match(m view.Match) *tendv1.GrepResponse_Match {
	return &tendv1.GrepResponse_Match{Stream: tendv1.Stream(m.Stream), From: m.From, To: m.To, Line: m.Line, Text: bytes.Clone(m.Text),
		Cut: m.Cut, Context: m.Context}
}

// ToMatch converts from a message.
func ToMatch(m *tendv1.GrepResponse_Match) view.Match {
	return view.Match{Stream: process.Stream(m.GetStream()), From: m.GetFrom(), To: m.GetTo(), Line: m.GetLine(), Text: m.GetText(),
		Cut: m.GetCut(), Context: m.GetContext()}
}
