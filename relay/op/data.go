package op

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

const (
	frameMIME = contract.OwnMIME + "frame+json"
	// previewLimit is the deadline of preview_dataframe.
	previewLimit = 30 * time.Second
	// graceLimit is how much later than DuckDB's own deadline the kernel is interrupted.
	graceLimit = 3 * time.Second
	// Bounds of a frame, as data/answer.py has them.
	maxFrameRows    = 200
	maxFrameColumns = 50
)

type previewArgs struct {
	Name    string `json:"name" min:"1" max:"1000" doc:"The frame's variable." arg:"NAME"`
	Rows    int64  `json:"rows" default:"20" min:"0" max:"200" doc:"Rows to show." flag:"rows,n" usage:"how many rows to show, at most 200"`
	Offset  int64  `json:"offset" default:"0" min:"0" doc:"Rows to skip." flag:"offset" usage:"how many rows to skip"`
	Columns string `json:"columns" default:"" max:"10000" doc:"Names, separated by commas; default all." flag:"columns" usage:"the 'NAMES' of the columns to show, separated by commas"`
	Filter  string `json:"filter" default:"" max:"10000" doc:"Such as: price > 3 and city in ['Bonn'] and note is not None" flag:"filter" usage:"show the rows with this 'CONDITION', such as \"price > 3 and city is not None\""`
	SortBy  string `json:"sort_by" default:"" max:"1000" doc:"A column, or column desc." flag:"sort" usage:"sort by this 'COLUMN', or \"column desc\""`
	target
}

func previewDataframe() Operation {
	return operation(spec{
		title:       "Look into a data frame",
		description: "Shows rows of a DataFrame, Series or Arrow table in the kernel, with dtypes and the number of rows. It runs no user code.",
		Command: Command{Group: "run",
			Short:    "Show rows of a DataFrame in the VM's kernel",
			Long:     "Show rows of a pandas, polars or Arrow frame in the VM's kernel, filtered and sorted. None of the user's code is run.",
			Examples: "  colab-relay df sales\n  colab-relay df sales --filter \"price > 3\" --sort \"price desc\" --columns city,price"},
	}, func(ctx context.Context, c *call, args previewArgs) (*Frame, error) {
		f, err := c.askFrame(ctx, kernelpy.Call{
			Function:  "data.preview.preview",
			Arguments: []any{args.Name, args.Rows, args.Offset, args.Columns, args.Filter, args.SortBy},
		}, previewLimit)
		if f != nil {
			f.offset = args.Offset
		}
		return f, err
	})
}

type queryArgs struct {
	SQL     string  `json:"sql" min:"1" max:"100000" doc:"One SELECT of DuckDB's SQL; variables are its tables." arg:"SQL"`
	Rows    int64   `json:"rows" default:"20" min:"0" max:"200" doc:"Rows to show." flag:"rows,n" usage:"how many rows to show, at most 200"`
	Timeout float64 `json:"timeout_seconds" default:"30" min:"1" max:"300" doc:"At most what one call may take." flag:"timeout" usage:"the deadline in 'SECONDS'"`
	target
}

func queryDataframes() Operation {
	return operation(spec{
		title:       "Query data frames with SQL",
		description: "Filters, joins and aggregates pandas, polars and Arrow frames in the kernel: SELECT city, avg(price) FROM df GROUP BY city. It reads no files and changes nothing.",
		Command: Command{Group: "run",
			Short:    "Query DataFrames in the VM's kernel with SQL",
			Long:     "Run one SELECT of DuckDB's SQL over the pandas, polars and Arrow frames in the VM's kernel; their variables are its tables. It reads no files and changes nothing.",
			Examples: "  colab-relay sql 'SELECT city, avg(price) FROM sales GROUP BY city'"},
	}, func(ctx context.Context, c *call, args queryArgs) (*Frame, error) {
		limit := min(time.Duration(args.Timeout*float64(time.Second)), max(c.waitBudget()-graceLimit, time.Second))
		return c.askFrame(ctx, kernelpy.Call{
			Function: "data.query.query", Arguments: []any{args.SQL, args.Rows, limit.Seconds()},
		}, limit+graceLimit)
	})
}

// Row is the cells of a row: texts, numbers, true, false, or null for a missing value.
type Row []any

// FrameColumn is a column of a Frame.
type FrameColumn struct {
	Name  string `json:"name"`
	Dtype string `json:"dtype"`
}

// Frame is the answer of preview_dataframe and query_dataframes.
type Frame struct {
	Columns     []FrameColumn `json:"columns,omitzero"`   // at most 50; a pandas index comes first, if it is not the rows' numbers
	ColumnCount int           `json:"column_count"`       // of all that were asked for
	Rows        []Row         `json:"rows,omitzero"`      // at most 200 and 36 kB; texts are cut at 200 characters
	RowCount    *int64        `json:"row_count,omitzero"` // of the whole frame, result, or what the filter leaves; absent if counting takes long
	Truncated   bool          `json:"truncated"`          // rows or columns are missing here
	Engine      string        `json:"engine"`             // pandas, polars, pyarrow or duckdb
	Notes       []string      `json:"notes,omitempty"`

	offset int64 // of the first row
}

// frameReport is what the functions in the kernel return.
type frameReport struct {
	Frame
	Error *struct{ Code, Message, Hint string } `json:"error"`
}

// frameCodes are the codes of problems that the functions in the kernel may report.
var frameCodes = []string{
	codeBadRequest, string(contract.CodeNotFound), string(contract.CodeNotSupported), string(contract.CodeLowMemory),
	string(contract.StatusTimedOut), string(contract.StatusFailed),
}

// askFrame calls a function that returns a frame.
func (c *call) askFrame(ctx context.Context, f kernelpy.Call, limit time.Duration) (*Frame, error) {
	f.MIME = frameMIME
	text, err := c.ask(ctx, f, limit)
	if err != nil {
		return nil, err
	}
	var got frameReport
	if err := client.Decode(ctx, text, &got); err != nil || !got.isSound() {
		return nil, internalProblem("the kernel's report about the frame is not as expected")
	}
	if e := got.Error; e != nil {
		p := &Problem{Code: e.Code, Message: saidByVM(e.Message), Hint: "Correct the call; " + saidByVM(e.Hint)}
		if !slices.Contains(frameCodes, p.Code) {
			p.Code = string(contract.StatusFailed)
		}
		return nil, p
	}
	kept, cut := fitList(got.Rows)
	got.Rows, got.Truncated = kept, got.Truncated || cut
	return &got.Frame, nil
}

// isSound reports whether a frame is within the bounds; code in the kernel may have made it.
func (f *Frame) isSound() bool {
	if len(f.Rows) > maxFrameRows || len(f.Columns) > maxFrameColumns || len(f.Notes) > maxFrameColumns {
		return false
	}
	return !slices.ContainsFunc(f.Rows, func(r Row) bool {
		return len(r) != len(f.Columns) || slices.ContainsFunc(r, isNested)
	})
}

func isNested(cell any) bool {
	switch cell.(type) {
	case []any, map[string]any:
		return true
	}
	return false
}

func (f *Frame) text(w *words) {
	fmt.Fprintf(w, "%s, %s (%s)\n", f.extent(), plain.Count(f.ColumnCount, "column"), inline(f.Engine))
	if more := f.ColumnCount - len(f.Columns); more > 0 {
		fmt.Fprintf(w, "Not shown: %s. Name them in %s.\n", plain.Count(more, "further column"), w.either("columns", "--columns"))
	}
	w.notes(f.Notes)
	columns, names := make([]terminal.Column, len(f.Columns)), make([]string, len(f.Columns))
	for i, column := range f.Columns {
		names[i] = oneLine(column.Name) + " (" + oneLine(column.Dtype) + ")"
		columns[i] = terminal.Column{Title: names[i]}
	}
	table, rows := terminal.NewTable(columns...), strings.Join(names, " | ")+"\n"
	for _, row := range f.Rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = cellText(cell)
		}
		table.Add(cells...)
		rows += strings.Join(cells, " | ") + "\n"
	}
	if w.person != nil {
		w.table("rows", table)
		return
	}
	w.quote("rows", rows)
}

// extent says which rows these are, of how many.
func (f *Frame) extent() string {
	last := f.offset + int64(len(f.Rows))
	switch {
	case f.RowCount == nil:
		return fmt.Sprintf("The first %d of more rows", len(f.Rows))
	case len(f.Rows) == 0:
		return fmt.Sprintf("0 of %d rows", *f.RowCount)
	case f.offset == 0 && last == *f.RowCount:
		return plain.Count(len(f.Rows), "row")
	}
	return fmt.Sprintf("Rows %d to %d of %d", f.offset, last-1, *f.RowCount)
}

func cellText(cell any) string {
	switch v := cell.(type) {
	case nil:
		return "null"
	case string:
		return oneLine(v)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return fmt.Sprint(cell)
}
