package gateway

import (
	"encoding/json"
	"strings"
	"unicode"
)

// choosers are fields of routers (LiteLLM, OpenRouter, Azure) by which something else than
// model chooses what is asked, or where.
var choosers = map[string]bool{
	"route": true, "preset": true, "extra_body": true, "litellm_params": true, "user_config": true, "router_settings_override": true,
	"deployment": true, "deployment_id": true, "engine": true, "api_base": true, "base_url": true, "api_key": true,
	"custom_llm_provider": true,
}

// chooses reports whether a name, folded, may name another model than the field model.
func chooses(name string) bool { return choosers[name] || saysModel(name) }

// saysModel reports whether a name, folded, is one of a model, wherever it stands.
// allow_fallbacks of OpenRouter is about who serves the same model.
func saysModel(name string) bool {
	return name != "allow_fallbacks" && (strings.Contains(name, "model") || strings.Contains(name, "fallback") ||
		strings.Contains(name, "routing"))
}

// texts are fields whose objects have names of the client's: what is said, schemas, and
// what is given back. A name in them names no model that is asked.
var texts = map[string]bool{
	"messages": true, "input": true, "prompt": true, "system": true, "instructions": true, "prediction": true, "documents": true,
	"metadata": true, "logit_bias": true,
	"response_format": true, "text": true, "output_config": true, "output_format": true, "functions": true, "tool_choice": true,
	"guided_json": true, "structured_outputs": true, "json_schema": true, "chat_template_kwargs": true,
}

// declarations are the fields of a tool that say what arguments it takes.
var declarations = map[string]bool{
	"function": true, "parameters": true, "input_schema": true, "input_examples": true, "output_schema": true, "custom": true,
	"functiondeclarations": true, "function_declarations": true,
}

// byName are the fields of a provider's tool whose names are the client's: of the tools of
// a server, and of headers for it.
var byName = map[string]bool{"configs": true, "headers": true}

// noModel reports whether a character is in the name of no model: a router takes a comma
// for several, and a reader in C a zero for the end.
func noModel(r rune) bool { return r == ',' || unicode.IsControl(r) }

// modelsIn are the values of fields that say a model, at any depth, but not inside of
// fields whose name is in skip. value is plain, and each byte of it is read once.
func modelsIn(value json.RawMessage, skip map[string]bool) (models []string) {
	for i := 0; i < len(value); {
		if value[i] != '"' {
			i++
			continue
		}
		end := endOfString(value, i)
		if end == len(value) || value[end] != ':' { // no name
			i = end
			continue
		}
		folded := fold(unquote(value[i:end]))
		i = end + 1
		switch {
		case skip[folded]:
			i = endOfValue(value, i)
		case saysModel(folded):
			end := endOfValue(value, i)
			if one := value[i:end]; isSet(one) {
				var model string
				if json.Unmarshal(one, &model) != nil || folded != "model" || strings.ContainsFunc(model, noModel) {
					model = string(one) // which no list has
				}
				models = append(models, model)
			}
			i = end
		}
	}
	return models
}

// modelsOfTools are the models that tools have their work done by, such as one that makes
// images, or advises. What the arguments of a tool of the client's are called says nothing.
func modelsOfTools(tools json.RawMessage) (models []string, err error) {
	if !isSet(tools) {
		return nil, nil
	}
	if !elements(tools, func(one json.RawMessage) bool {
		skip := declarations
		fields(one, func(name string, value json.RawMessage) bool {
			switch {
			case !plainName(name):
				err = errNames
			case strings.EqualFold(name, "type") && string(value) != `"function"` && string(value) != `"custom"`:
				skip = byName // a tool of the provider's, whose arguments the request sets
			}
			return err == nil
		})
		models = append(models, modelsIn(one, skip)...)
		return err == nil
	}) && err == nil {
		models = append(models, string(tools)) // which no list has
	}
	return models, err
}
