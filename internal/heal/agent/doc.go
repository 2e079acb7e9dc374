// Package agent asks a language model to repair a service, and carries out
// what the model asks for.
//
// [Run] is one attempt: it shows the model what is broken, runs the tools that it
// calls, and gives it their results, until it says that it has finished, its
// [Budget] is used up, or it makes no progress. Whatever a model answers, Run
// ends. What it ends with is a claim: whether the service is well is for its
// caller to find out.
//
//	model, err := agent.NewAnthropic(agent.Config{Key: key, Model: "claude-sonnet-4-6"})
//	out, err := agent.Run(ctx, model, agent.Attempt{
//		Number: 1, Of: 3,
//		Story:  agent.Story{Service: "web", Command: "node server.js", Signal: "exit 1", Evidence: ...},
//		Tools:  agent.Tools(hands),
//		Redact: redactor.Text,
//	})
//
// # Who holds what
//
// A model is not trusted. Everything that protects a project is in the [Hands]
// that carry out its calls (paths, protected files, the sandbox of commands) and
// in what their owner does afterwards (verification, rollback). This package
// holds the rest:
//
//   - Text that comes from outside, be it a log, a file or the output of a command,
//     is redacted first, then bounded, then wrapped as data by marks that it cannot
//     contain ([Attempt.Redact], data.go).
//   - The input of a call is checked against the tool's JSON schema. A call that is
//     malformed, cut off by the token limit, or to a tool that there is not, is never
//     run: the model is told what is wrong.
//   - Each call has its result in the very next message; a message is never empty.
//   - Budgets of requests, tokens, money and time ([Budget]).
//   - A model that repeats itself is stopped (loops.go).
//   - The conversation is kept within bounds: old results are shortened, and no call
//     loses its result (history.go).
//
// [Suspicious] and [Review] ask of a finished change whether it only silences the
// symptom: by rules, and by a second model.
//
// # Models
//
// [NewAnthropic] speaks Anthropic's Messages API by its official SDK, [NewOpenAI]
// the chat/completions API that many servers have. Both stream. They try again
// what may be tried again, also if a stream breaks in its middle, and honour
// retry-after. A reply without an end is no reply: a stream that just stops, and
// one without a reason to stop, are failures.
package agent
