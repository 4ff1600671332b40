package page

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"colabrelay/shared/bounded"
)

// Bounds of one message of a tab, besides maxMessage. The cells of a notebook are one text
// for the message, so real messages have some hundred values.
const (
	maxDepth  = 100     // of values in one another
	maxValues = 100_000 // brackets and commas, so that decoded values take little more memory than the message
	maxID     = 200     // bytes of the id of a tab's request, which its answer repeats
)

// errComplex says that a message has a form that would cost too much memory.
var errComplex = errors.New("the message has too many values, or values nested too deep")

// message is a JSON-RPC message of a tab: a request (method and id), a notification (method)
// or an answer (id).
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *rpcError       `json:"error"`
}

// rpcError is the error of an answer.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func decodeMessage(data []byte) (message, error) {
	var m message
	if !utf8.Valid(data) {
		return m, errors.New("the message is not UTF-8")
	}
	values := 0
	for range bounded.Structure(data) {
		values++
	}
	if values > maxValues || bounded.Depth(data) > maxDepth {
		return m, errComplex
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("reading a message: %w", err)
	}
	if m.Version != "2.0" || m.Method == "" && (len(m.ID) == 0 || m.Result == nil && m.Error == nil) {
		return m, errors.New("the message is not one of JSON-RPC 2.0")
	}
	return m, nil
}

// answers returns the number of the request that m answers.
func (m *message) answers() (int64, bool) {
	if m.Method != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(string(m.ID), 10, 64)
	return n, err == nil
}

// answerable reports whether m is a request whose id can be repeated in an answer.
func (m *message) answerable() bool {
	return m.Method != "" && len(m.ID) > 0 && len(m.ID) <= maxID && string(m.ID) != "null" && m.ID[0] != '{' && m.ID[0] != '['
}

// elements returns an upper bound of the number of elements of a list, as JSON.
func elements(list []byte) int {
	count, level := 1, 0
	for b := range bounded.Structure(list) {
		switch {
		case b == '{' || b == '[':
			level++
		case b == '}' || b == ']':
			level--
		case level == 1:
			count++
		}
	}
	return count
}
