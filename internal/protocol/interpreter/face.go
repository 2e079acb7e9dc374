// Package interpreter serves E2B's code interpreter on port 49999 of sandboxes that have kernels, for the SDKs
// e2b-code-interpreter and @e2b/code-interpreter, by names and tokens as all ports of a sandbox:
//
//	GET    /health                200 "OK"
//	POST   /execute               {"code", "context_id", "language", "env_vars"} → lines of JSON
//	POST   /contexts              {"language", "cwd"} → {"id", "language", "cwd"}
//	GET    /contexts              a list of these
//	DELETE /contexts/ID           null
//	POST   /contexts/ID/restart   null
//
// The lines of /execute are events: number_of_executions, stdout, stderr, result, error, and last
// end_of_execution; keepalive after five seconds of silence. A client that leaves interrupts its cell. A server of
// tend that ends does not: the answer is cut off, and the cell runs on.
//
// Of tend's own: the answer of /execute has the header Tend-Execution, and
//
//	GET /executions/EXECUTION?from=N
//
// answers with the events of that cell again from the Nth on (keepalive is not counted), as far as their output is
// kept, and then with those that come. A client that leaves such an answer interrupts nothing.
//
// /execute and /executions need the access token of envd (X-Access-Token) where envd itself does; the SDKs do not show it for
// contexts. Programs inside, which find the port on localhost, need none.
//
// Requests are refused as the original does: 400, 401, 404 and 500 with a text, 422 with JSON; and 429 if a sandbox has too
// many contexts, or too much input waits for a kernel.
package interpreter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/interpreter"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/route"
	"github.com/tend-run/tend/process"
)

// Port of the code interpreter in each sandbox.
const Port = route.CodePort

// executionHeader names the execution of an answer.
const executionHeader = "Tend-Execution"

const (
	maxBody      = 16 << 20
	defaultQuiet = 5 * time.Second
)

// Config of the face. Service is required.
type Config struct {
	Service *interpreter.Service
	Secret  *protocol.Secret
	// Token returns the server's access token; nil: it has none.
	Token  func() protocol.Token
	Budget *budget.Budget // of what is held for clients; nil: no bound
	Log    *slog.Logger   // nil: nothing is logged
	// Quiet is how long an answer is silent before a keepalive; 0: five seconds.
	Quiet time.Duration
}

// Face is the part. Close it when the server stops.
type Face struct {
	service *interpreter.Service
	secret  *protocol.Secret
	token   func() protocol.Token
	budget  *budget.Budget
	log     *slog.Logger
	quiet   time.Duration
	// closing is over when the server stops; close ends it.
	closing context.Context
	close   context.CancelFunc
}

var _ module.Part = (*Face)(nil)

// New returns the part.
func New(c Config) *Face {
	f := &Face{service: c.Service, secret: c.Secret, token: c.Token, budget: c.Budget, log: c.Log, quiet: cmp.Or(c.Quiet, defaultQuiet)}
	if f.token == nil {
		f.token = func() protocol.Token { return "" }
	}
	f.closing, f.close = context.WithCancel(context.Background())
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	return f
}

// Name implements [module.Part].
func (f *Face) Name() string { return "interpreter" }

// Close cuts the answers off whose cells run. Their clients have not left: the cells run on.
func (f *Face) Close() error {
	f.close()
	return nil
}

// Own returns the handler of a port of a sandbox, or nil if it is a program's: as ports.Config has it.
func (f *Face) Own(t *route.Target) http.Handler {
	sandbox := interpreter.Sandbox{ID: string(t.ID), Access: t.Access}
	if t.Port != Port || !f.service.Serves(sandbox) {
		return nil
	}
	mux := http.NewServeMux()
	for pattern, h := range map[string]func(*request) error{
		"GET /health":                 (*request).health,
		"POST /execute":               (*request).execute,
		"GET /executions/{id}":        (*request).follow,
		"GET /contexts":               (*request).contexts,
		"POST /contexts":              (*request).create,
		"DELETE /contexts/{id}":       (*request).remove,
		"POST /contexts/{id}/restart": (*request).restart,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			req := &request{f, sandbox, w, r, t.ID, t.Info.Notes[protocol.NoteSecure] != ""}
			if err := h(req); err != nil {
				req.refuse(err)
			}
		})
	}
	return mux
}

// request is one request for a sandbox.
type request struct {
	*Face
	sandbox interpreter.Sandbox
	w       http.ResponseWriter
	r       *http.Request
	id      driver.ID
	// secure: the sandbox needs its token, whether or not the server needs one.
	secure bool
}

// refusal is an answer that is an error.
type refusal struct {
	code int
	text string
}

func (e *refusal) Error() string { return e.text }

// unfit is a body that FastAPI would refuse, as it does.
type unfit struct{ text string }

func (e *unfit) Error() string { return e.text }

func (q *request) refuse(err error) {
	if q.r.Context().Err() != nil {
		return // the client has left
	}
	if e, ok := errors.AsType[*unfit](err); ok {
		q.answer(http.StatusUnprocessableEntity, map[string]any{"detail": []any{
			map[string]any{"type": "value_error", "loc": []string{"body"}, "msg": e.text}}})
		return
	}
	if errors.Is(err, driver.ErrNotFound) {
		panic(http.ErrAbortHandler) // the sandbox has ended meanwhile, and with it this connection
	}
	code, text := http.StatusInternalServerError, err.Error()
	if e, ok := errors.AsType[*refusal](err); ok {
		code = e.code
	} else if _, ok := errors.AsType[*interpreter.ContextError](err); ok || errors.Is(err, interpreter.ErrNoExecution) {
		code = http.StatusNotFound
	} else if _, ok := errors.AsType[*interpreter.LimitError](err); ok || errors.Is(err, process.ErrLimit) {
		code = http.StatusTooManyRequests
	} else if _, ok := errors.AsType[*budget.BusyError](err); ok || errors.Is(err, process.ErrUnavailable) {
		code = http.StatusServiceUnavailable
		q.w.Header().Set("Retry-After", "1")
	} else {
		q.log.Warn("request failed", "face", "interpreter", "id", q.sandbox.ID, "err", err)
	}
	protocol.Inert(q.w.Header())
	q.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	q.w.WriteHeader(code)
	_, _ = io.WriteString(q.w, text) // fails when the client has left
}

func (q *request) answer(code int, v any) {
	text, err := json.Marshal(v)
	if err != nil { // impossible: strings
		text = []byte("null")
	}
	q.w.Header().Set("Content-Type", "application/json")
	q.w.WriteHeader(code)
	_, _ = q.w.Write(text) // fails when the client has left
}

// decode reads the body into v, and charges for it until the request ends.
func (q *request) decode(v any) (done func(), err error) {
	held := q.budget.Charge(budget.Sandbox(q.id))
	if n := q.r.ContentLength; n < 0 || n > 4<<10 {
		if n < 0 || n > maxBody {
			n = maxBody
		}
		if err := held.Add(3 * n); err != nil {
			return held.Release, err
		}
	}
	body, err := io.ReadAll(http.MaxBytesReader(q.w, q.r.Body, maxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return held.Release, &refusal{http.StatusRequestEntityTooLarge,
			fmt.Sprintf("the body has more than %d MiB; write large data to a file of the sandbox", maxBody>>20)}
	}
	if err != nil {
		return held.Release, &unfit{err.Error()}
	}
	if err := protocol.DecodeJSON(body, v); err != nil {
		return held.Release, &unfit{err.Error()}
	}
	return held.Release, nil
}

func (q *request) health() error {
	q.answer(http.StatusOK, "OK")
	return nil
}

func (q *request) contexts() error {
	all, err := q.service.Contexts(q.r.Context(), q.sandbox)
	if err != nil {
		return err
	}
	q.answer(http.StatusOK, all)
	return nil
}

func (q *request) create() error {
	var body struct {
		Language string `json:"language"`
		Dir      string `json:"cwd"`
	}
	done, err := q.decode(&body)
	defer done()
	if err != nil {
		return err
	}
	if body.Dir != "" && (body.Dir[0] != '/' || strings.ContainsRune(body.Dir, 0)) {
		return &refusal{http.StatusInternalServerError, fmt.Sprintf("Failed to set working directory: %.200q is not absolute", body.Dir)}
	}
	c, err := q.service.Create(context.WithoutCancel(q.r.Context()), q.sandbox, body.Language, body.Dir)
	if err != nil {
		return err
	}
	q.answer(http.StatusOK, c)
	return nil
}

func (q *request) remove() error {
	if err := q.service.Remove(context.WithoutCancel(q.r.Context()), q.sandbox, q.r.PathValue("id")); err != nil {
		return err
	}
	q.answer(http.StatusOK, nil)
	return nil
}

func (q *request) restart() error {
	if err := q.service.Restart(context.WithoutCancel(q.r.Context()), q.sandbox, q.r.PathValue("id")); err != nil {
		return err
	}
	q.answer(http.StatusOK, nil)
	return nil
}

// permit asks for the access token of envd, if the sandbox needs one. The SDKs show it to run code, and not for contexts.
func (q *request) permit() error {
	if route.Inside(q.r.Context()) != "" { // who runs there may run what it likes
		return nil
	}
	tokens := q.secret.Accepted(q.token(), q.sandbox.ID, q.secure)
	if len(tokens) > 0 && !protocol.MatchesAny(tokens, protocol.AccessToken(q.r)) {
		return &refusal{http.StatusUnauthorized, "this sandbox needs its access token in the header X-Access-Token"}
	}
	return nil
}

func (q *request) execute() error {
	if err := q.permit(); err != nil {
		return err
	}
	var body struct {
		Code     *string           `json:"code"`
		Context  string            `json:"context_id"`
		Language string            `json:"language"`
		Env      map[string]string `json:"env_vars"`
	}
	done, err := q.decode(&body)
	defer done()
	if err != nil {
		return err
	}
	switch {
	case body.Code == nil:
		return &unfit{"code: Field required"}
	case body.Context != "" && body.Language != "":
		return &refusal{http.StatusBadRequest, "Only one of context_id or language can be provided"}
	}
	if err := driver.CheckEnv("env_vars", body.Env); err != nil {
		return &unfit{err.Error()}
	}
	e, err := q.service.Run(q.r.Context(), q.sandbox,
		interpreter.Cell{Code: *body.Code, Context: body.Context, Language: body.Language, Env: body.Env})
	done()
	if err != nil {
		return err
	}
	if !q.send(e, 0) {
		if err := e.Cancel(context.WithoutCancel(q.r.Context())); err != nil {
			q.log.Warn("a cell whose client has left is not interrupted", "face", "interpreter", "id", q.sandbox.ID, "err", err)
		}
	}
	return nil
}

func (q *request) follow() error {
	if err := q.permit(); err != nil {
		return err
	}
	from, err := strconv.ParseInt(cmp.Or(q.r.URL.Query().Get("from"), "0"), 10, 64)
	if err != nil || from < 0 {
		return &refusal{http.StatusBadRequest,
			fmt.Sprintf("from is %.40q; the number of events that are known is needed", q.r.URL.Query().Get("from"))}
	}
	e, err := q.service.Follow(q.r.Context(), q.sandbox, q.r.PathValue("id"))
	if err != nil {
		return err
	}
	q.send(e, from)
	return nil
}

// send answers with the events of a cell, but for the first ones, and closes it. It reports whether the client has got
// all: if not, it has left, or this server ends. An answer that this server cannot end is cut off.
func (q *request) send(e *interpreter.Execution, skip int64) bool {
	held := q.budget.Charge(budget.Sandbox(q.id))
	defer held.Release()
	defer e.Close()
	e.Charge(held)
	protocol.Inert(q.w.Header())
	q.w.Header().Set(executionHeader, e.ID)
	q.w.Header().Set("X-Accel-Buffering", "no")
	q.w.Header()["Content-Type"] = nil // as the original
	q.w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(q.w)
	for {
		ctx, cancel := context.WithTimeout(q.r.Context(), q.quiet)
		stop := context.AfterFunc(q.closing, cancel)
		event, err := e.Next(ctx)
		stop()
		cancel()
		switch {
		case errors.Is(err, io.EOF):
			return true
		case q.closing.Err() != nil:
			panic(http.ErrAbortHandler)
		case q.r.Context().Err() != nil:
			return false
		case errors.Is(err, context.DeadlineExceeded):
			event = []byte(`{"type": "keepalive"}`)
		case err != nil:
			if !errors.Is(err, driver.ErrNotFound) { // the sandbox has ended
				q.log.Warn("an answer is cut off", "face", "interpreter", "id", q.sandbox.ID, "err", err)
			}
			panic(http.ErrAbortHandler)
		case skip > 0:
			skip--
			continue
		}
		if _, err := q.w.Write(append(event, '\n')); err != nil {
			return false
		}
		if err := out.Flush(); err != nil {
			return false
		}
	}
}
