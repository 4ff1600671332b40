package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"
)

const (
	// probeTime bounds the time in which a page of another process must answer.
	probeTime = 2 * time.Second
	// maxStatus bounds the answer, in bytes.
	maxStatus = 4 << 10
)

// errNotThere says that no process has the page of a control file any more.
var errNotThere = errors.New("the process has ended, or no longer listens for Colab's page")

// Other is a Page of another process of this user, known by its control file.
type Other struct {
	PID     int
	Port    int
	Started time.Time // of its listener
	secret  string
}

// ControlAll returns the pages of the other processes, oldest first, whose control files are
// in dir. It removes the files of processes that ended: their port is closed, or is another
// program's, which does not know the secret.
func ControlAll(dir string) ([]*Other, error) {
	files, err := readControlFiles(dir)
	if err != nil {
		return nil, err
	}
	var others []*Other
	for path, file := range files {
		o := &Other{PID: file.PID, Port: file.Port, Started: file.Started, secret: file.Secret}
		if _, err := o.Status(context.Background()); errors.Is(err, errNotThere) {
			_ = os.Remove(path) // the next call removes a file that stays
			continue
		}
		others = append(others, o)
	}
	slices.SortFunc(others, func(a, b *Other) int { return a.Started.Compare(b.Started) })
	return others, nil
}

// Status asks the other process what its page does.
func (o *Other) Status(ctx context.Context) (State, error) {
	var state State
	answer, err := o.ask(ctx, http.MethodGet, controlStatus)
	if err == nil && json.Unmarshal(answer, &state) != nil {
		err = errNotThere
	}
	if err != nil {
		return state, fmt.Errorf("asking process %d about its Colab page: %w", o.PID, err)
	}
	return state, nil
}

// Close asks the other process to close its page. The process runs on, and opens the page
// again when it needs it.
func (o *Other) Close(ctx context.Context) error {
	if _, err := o.ask(ctx, http.MethodPost, controlClose); err != nil {
		return fmt.Errorf("asking process %d to close its Colab page: %w", o.PID, err)
	}
	return nil
}

func (o *Other) ask(ctx context.Context, method, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1:"+strconv.Itoa(o.Port)+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+o.secret)
	transport := &http.Transport{DisableKeepAlives: true} // and no proxy
	response, err := transport.RoundTrip(request)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, errNotThere
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		return nil, errNotThere
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxStatus))
	if err != nil {
		return nil, errNotThere
	}
	return answer, nil
}
