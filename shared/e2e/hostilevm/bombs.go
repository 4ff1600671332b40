package hostilevm

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
)

// bombCases are small when sent, but large in the relay's memory or on its disk.
var bombCases = append(pictureCases, []Case{
	{
		Name: "events", About: "answers a submit with 15 MiB of empty events, which would take 3 GB of memory",
		routes: func(*fakevm.VM) routes {
			return routes{"POST " + contract.PathExecutions: func(q question) fakevm.Reply {
				return list(finished(requestID(q)), `"events":[]`, "events")
			}}
		},
	},
	listBomb("executions", "GET "+contract.PathExecutions, contract.ExecutionList{Executions: []contract.Execution{}}, `"executions":[]`),
	listBomb("variables", "GET "+contract.PathVariables, contract.Variables{Variables: []contract.Variable{}}, `"variables":[]`),
	listBomb("files", "GET "+contract.PathFiles, contract.Files{Files: []contract.File{}}, `"files":[]`),
	listBomb("disks", "GET "+contract.PathProbe, contract.Probe{Storage: []contract.Disk{}}, `"storage":[]`),
	{
		Name: "gzip", About: "answers a submit with 256 MiB of zeros, which are compressed to a thousandth",
		routes: func(*fakevm.VM) routes {
			return routes{"POST " + contract.PathExecutions: just(make([]byte, 256<<20))}
		},
	},
	{
		Name: "endless-blob", About: "shows a picture of 1 MB whose blob never ends",
		routes: func(*fakevm.VM) routes {
			part := bytes.Repeat([]byte("x"), contract.MaxBlobPart)
			return routes{
				"POST " + contract.PathExecutions: func(q question) fakevm.Reply {
					return execution(requestID(q), picture(`{"blob":{"number":1,"sha256":"`+strings.Repeat("ab", 32)+`","bytes":1000000}}`))
				},
				"GET " + contract.PathBlob: func(question) fakevm.Reply { return fakevm.Reply{Body: part} },
			}
		},
	},
	payloads("payloads", "shows 40 pictures of 9 MiB, none of which is one", "image/png", 40, make([]byte, 9<<20)),
	payloads("empty-lists", "shows 4 MiB of empty lists, three times, which would take 1 GB as a tree of values", "application/json", 3,
		[]byte("["+strings.Repeat("[],", 4<<20/3)+"[]]")),
}...)

// payloads shows one payload in as many displays.
func payloads(name, about, mime string, displays int, content []byte) Case {
	sum := sha256.Sum256(content)
	ref := fmt.Sprintf(`{"blob":{"number":1,"sha256":"%x","bytes":%d}}`, sum, len(content))
	shown := contract.Event{Type: contract.EventDisplayData, Data: bundle(mime, ref)}
	return Case{Name: name, About: about, routes: func(*fakevm.VM) routes {
		return routes{
			"POST " + contract.PathExecutions: func(q question) fakevm.Reply { return execution(requestID(q), many(displays, shown)...) },
			"GET " + contract.PathBlob: func(q question) fakevm.Reply {
				from, _ := strconv.Atoi(q.URL.Query().Get("offset"))
				length, _ := strconv.Atoi(q.URL.Query().Get("length"))
				from = min(max(from, 0), len(content))
				return fakevm.Reply{Body: content[from:min(from+max(length, 0), len(content))]}
			},
		}
	}}
}

// listBomb answers route with a list of as many {} as fit into an answer.
func listBomb(name, route string, v any, empty string) Case {
	return Case{
		Name: name, About: "lists as many empty items as fit into 15 MiB",
		routes: func(*fakevm.VM) routes {
			return routes{route: func(question) fakevm.Reply { return list(v, empty, empty[1:len(empty)-len(`":[]`)]) }}
		},
	}
}

// bombBytes is the size of the items in a list. It is below every bound that the relay has
// for a whole answer.
const bombBytes = 15 << 20

// list returns v as JSON, with as many {} as fit into an answer in the list that is
// written as empty.
func list(v any, empty, field string) fakevm.Reply {
	text := marshal(v)
	full := `"` + field + `":[` + strings.Repeat("{},", bombBytes/3) + "{}]"
	return fakevm.Reply{Body: []byte(strings.Replace(string(text), empty, full, 1))}
}
