package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/lib/errtext"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// images implements the ImageService.
type images struct{ sandboxes *sandboxes }

func (s images) imager() (driver.Imager, error) {
	m, ok := s.sandboxes.driver.(driver.Imager)
	if !ok {
		return nil, s.sandboxes.lacks("images")
	}
	return m, nil
}

// named is imager, for what names an image.
func (s images) named(key string) (driver.Imager, error) {
	if key == "" || len(key) > driver.MaxImageName {
		return nil, wireError(&process.InvalidError{Field: "image", Reason: fmt.Sprintf("has %d bytes; 1 to %d are allowed",
			len(key), driver.MaxImageName)})
	}
	return s.imager()
}

// ofImage answers a call about one image.
func ofImage[A any](s images, key string, do func(driver.Imager) (*A, error)) (*connect.Response[A], error) {
	m, err := s.named(key)
	if err != nil {
		return nil, err
	}
	a, err := do(m)
	return answer(a, imageError(key, err))
}

func imageOf(m driver.Image) *tendv1.Image {
	return &tendv1.Image{
		Id: m.ID, Digest: m.Digest, Names: m.Names, Platform: text(m.Platform), Made: tendpb.Time(m.Made), Added: tendpb.Time(m.Added),
		Bytes: m.Bytes, Entries: m.Entries, Run: &tendv1.SandboxRun{User: text(m.Run.User), Dir: text(m.Run.Dir), Env: texts(m.Run.Env)},
		Entrypoint: cleaned(m.Entrypoint), Cmd: cleaned(m.Cmd), Ports: cleaned(m.Ports), Labels: texts(m.Labels), Layers: m.Layers,
		LeftOut: m.Left,
	}
}

func cleaned(list []string) (all []string) {
	for _, s := range list {
		all = append(all, text(s))
	}
	return all
}

func imagesOf(list []driver.Image) (all []*tendv1.Image) {
	for _, m := range list {
		all = append(all, imageOf(m))
	}
	return all
}

func (s images) ListImages(ctx context.Context,
	_ *connect.Request[tendv1.ListImagesRequest]) (*connect.Response[tendv1.ListImagesResponse], error) {
	m, err := s.imager()
	if err != nil {
		return nil, err
	}
	all, err := m.Images(ctx)
	return answer(&tendv1.ListImagesResponse{Images: imagesOf(all)}, err)
}

func (s images) GetImage(ctx context.Context,
	req *connect.Request[tendv1.GetImageRequest]) (*connect.Response[tendv1.GetImageResponse], error) {
	return ofImage(s, req.Msg.GetImage(), func(m driver.Imager) (*tendv1.GetImageResponse, error) {
		one, err := m.Image(ctx, req.Msg.GetImage())
		return &tendv1.GetImageResponse{Image: imageOf(one)}, err
	})
}

func (s images) RemoveImage(ctx context.Context,
	req *connect.Request[tendv1.RemoveImageRequest]) (*connect.Response[tendv1.RemoveImageResponse], error) {
	return ofImage(s, req.Msg.GetImage(), func(m driver.Imager) (*tendv1.RemoveImageResponse, error) {
		one, err := m.RemoveImage(ctx, req.Msg.GetImage())
		return &tendv1.RemoveImageResponse{Image: imageOf(one)}, err
	})
}

func (s images) PruneImages(ctx context.Context,
	req *connect.Request[tendv1.PruneImagesRequest]) (*connect.Response[tendv1.PruneImagesResponse], error) {
	m, err := s.imager()
	if err != nil {
		return nil, err
	}
	all, err := m.PruneImages(ctx, req.Msg.GetAll())
	return answer(&tendv1.PruneImagesResponse{Images: imagesOf(all)}, err)
}

func (s images) ImportImage(ctx context.Context,
	stream *connect.ClientStream[tendv1.ImportImageRequest]) (*connect.Response[tendv1.ImportImageResponse], error) {
	m, err := s.imager()
	if err != nil {
		return nil, err
	}
	if !stream.Receive() {
		return nil, wireError(errors.Join(stream.Err(), &process.InvalidError{Field: "data", Reason: "is missing"}))
	}
	first := stream.Msg()
	if len(first.GetName()) > driver.MaxImageName {
		return nil, wireError(&process.InvalidError{Field: "name", Reason: fmt.Sprintf("has %d bytes; the limit is %d",
			len(first.GetName()), driver.MaxImageName)})
	}
	all, err := m.ImportImage(ctx, &imageData{stream: stream, now: first.GetData()}, driver.ImageOptions{Name: first.GetName()})
	return answer(&tendv1.ImportImageResponse{Images: imagesOf(all)}, err)
}

// PullImage sends at least a message in each heartbeat.
func (s images) PullImage(ctx context.Context, req *connect.Request[tendv1.PullImageRequest],
	stream *connect.ServerStream[tendv1.PullImageResponse]) error {
	key := req.Msg.GetImage()
	m, err := s.named(key)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	now, said := &tendv1.PullImageResponse{}, []string(nil)
	over := make(chan error, 1)
	var one driver.Image
	go func() {
		var err error
		one, err = m.PullImage(ctx, driver.Pull{Name: key, Owner: true,
			Say: func(text string) {
				mu.Lock()
				defer mu.Unlock()
				said = append(said, text)
			},
			Progress: func(done, total int64) {
				mu.Lock()
				defer mu.Unlock()
				now.Done, now.Total = done, total
			}})
		over <- err
	}()
	// Whoever has asked waits for the end of it, so that nothing of a call is left.
	ended := false
	defer func() {
		if !ended {
			cancel(errors.New("the caller has gone"))
			<-over
		}
	}()
	tick := time.NewTicker(lookBuild)
	defer tick.Stop()
	sent, last := time.Now(), int64(-1)
	for {
		select {
		case err := <-over:
			ended = true
			if err != nil {
				return wireError(imageError(key, err))
			}
		case <-s.sandboxes.stopping:
			return wireError(fmt.Errorf("the server ends, and the fetch with it; what is complete stays: %w", process.ErrUnavailable))
		case <-tick.C:
		}
		mu.Lock()
		texts, done, total := said, now.Done, now.Total
		said = nil
		mu.Unlock()
		for _, t := range texts {
			if err := stream.Send(&tendv1.PullImageResponse{Message: text(t), Done: done, Total: total}); err != nil {
				return err
			}
		}
		if ended {
			return stream.Send(&tendv1.PullImageResponse{Done: done, Total: total, Image: imageOf(one)})
		}
		if done != last || time.Since(sent) >= s.sandboxes.heartbeat {
			if err := stream.Send(&tendv1.PullImageResponse{Done: done, Total: total}); err != nil {
				return err
			}
			sent, last = time.Now(), done
		}
	}
}

// ExportImage sends an archive piece by piece, and an empty one in each heartbeat: of a layer
// nothing is sent before all of it was read.
func (s images) ExportImage(ctx context.Context, req *connect.Request[tendv1.ExportImageRequest],
	stream *connect.ServerStream[tendv1.ExportImageResponse]) error {
	key := req.Msg.GetImage()
	m, err := s.named(key)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	out := &imageOut{stream: stream}
	var beats sync.WaitGroup
	beats.Go(func() {
		tick := time.NewTicker(s.sandboxes.heartbeat)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_, _ = out.Write(nil) // the next piece has the same fault
			case <-s.sandboxes.stopping:
				cancel(fmt.Errorf("the server ends, and the archive is not whole: %w", process.ErrUnavailable))
				return
			case <-ctx.Done():
				return
			}
		}
	})
	if err = m.ExportImage(ctx, key, out); err != nil {
		if errors.Is(err, context.Canceled) {
			err = context.Cause(ctx)
		}
		err = wireError(imageError(key, err))
	}
	cancel(nil)
	beats.Wait()
	return err
}

// imageOut sends what is written to it.
type imageOut struct {
	mu     sync.Mutex // one piece at a time is sent
	stream *connect.ServerStream[tendv1.ExportImageResponse]
}

func (o *imageOut) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(b), o.stream.Send(&tendv1.ExportImageResponse{Data: b})
}

// present has the driver have an image that a sandbox is asked for.
func (s images) present(ctx context.Context, key string) error {
	m, ok := s.sandboxes.driver.(driver.Imager)
	if key == "" || !ok {
		return nil
	}
	_, err := m.Image(ctx, key)
	if errors.Is(err, driver.ErrNotFound) {
		_, err = m.PullImage(ctx, driver.Pull{Name: key, Owner: true})
	}
	if errors.Is(err, driver.ErrUnsupported) {
		return nil // a creation says more
	}
	return imageError(key, err)
}

// imageError says what was not found.
func imageError(key string, err error) error {
	if !errors.Is(err, driver.ErrNotFound) {
		return err
	}
	said := err.Error()
	if !strings.Contains(said, "registry") {
		said = fmt.Sprintf("there is no image %.200q", key)
	}
	return errtext.New(said, process.ErrNotFound)
}

// imageData are the data of a stream.
type imageData struct {
	stream *connect.ClientStream[tendv1.ImportImageRequest]
	now    []byte
}

func (p *imageData) Read(b []byte) (int, error) {
	for len(p.now) == 0 {
		if !p.stream.Receive() {
			if err := p.stream.Err(); err != nil {
				return 0, err
			}
			return 0, io.EOF
		}
		if p.stream.Msg().GetName() != "" {
			return 0, &process.InvalidError{Field: "name", Reason: "is set in a later message; the first one has it"}
		}
		p.now = p.stream.Msg().GetData()
	}
	n := copy(b, p.now)
	p.now = p.now[n:]
	return n, nil
}
