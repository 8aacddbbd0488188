#include "tune/database.h"

#include <sqlite3.h>

#include <cstdlib>

#include "tune/bench.h"

namespace ridgeline {
namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 1;                // of the tables; PRAGMA user_version
constexpr int kApplication = 0x52444745;  // "RDGE": PRAGMA application_id
constexpr int kBusyMs = 5000;
constexpr const char* kSchema =
    "CREATE TABLE tuned(machine TEXT NOT NULL, problem TEXT NOT NULL, kernel TEXT NOT NULL, version INTEGER NOT NULL, "
    "tile TEXT NOT NULL, time_ns REAL NOT NULL, PRIMARY KEY(machine, problem))";

}  // namespace

std::optional<fs::path> data_directory() {
  const auto variable = [](const char* key) -> std::optional<fs::path> {
    const char* value = std::getenv(key);
    return value && *value ? std::optional<fs::path>(value) : std::nullopt;
  };
  if (auto directory = variable("RIDGELINE_DATA_DIR")) return directory;
  if (auto directory = variable("XDG_DATA_HOME")) return *directory / "ridgeline";
  if (auto home = variable("HOME")) return *home / ".local" / "share" / "ridgeline";
  return std::nullopt;
}

std::optional<fs::path> tuning_file() {
  const auto directory = data_directory();
  return directory ? std::optional<fs::path>(*directory / "tuned.sqlite") : std::nullopt;
}

// A connection, its statements' values and its errors. All text that goes in is bound, never pasted.
struct TuningDatabase::Connection {
  sqlite3* db = nullptr;
  fs::path path;

  Connection(const fs::path& file, int flags) : path(file) {
    // A FIFO in its place would be waited for without end.
    if (std::error_code error; fs::exists(file, error) && !fs::is_regular_file(file, error))
      fail(
          ErrorCode::kResource,
          "{}: the tuned results cannot be opened: no regular file; move it away, or set RIDGELINE_DATA_DIR to another "
          "folder",
          file.string());
    const int code = sqlite3_open_v2(file.c_str(), &db, flags, nullptr);
    if (code != SQLITE_OK) {
      const std::string why = db ? sqlite3_errmsg(db) : sqlite3_errstr(code);
      sqlite3_close(db);
      fail(ErrorCode::kResource, "{}: the tuned results cannot be opened: {}", file.string(), why);
    }
    sqlite3_busy_timeout(db, kBusyMs);
  }
  ~Connection() { sqlite3_close(db); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  [[noreturn]] void complain(int code) const {
    std::string remedy;
    switch (code & 0xff) {
      case SQLITE_CORRUPT:
      case SQLITE_NOTADB:
        remedy = "the file is broken, or none of ours: move it away, and `ridgeline tune` makes a new one";
        break;
      case SQLITE_BUSY:
      case SQLITE_LOCKED:
        remedy =
            fmt::format("another process has held it for more than {} s: try again when it is done", kBusyMs / 1000);
        break;
      case SQLITE_READONLY:
      case SQLITE_CANTOPEN:
      case SQLITE_PERM:
        remedy = "make the file and its folder writable, or set RIDGELINE_DATA_DIR to another folder";
        break;
      case SQLITE_FULL:
        remedy = "the disk is full";
        break;
      default:
        remedy = "set RIDGELINE_DATA_DIR to another folder to go on without it";
    }
    fail(ErrorCode::kResource, "{}: tuned results: {} ({})", path.string(), sqlite3_errmsg(db), remedy);
  }

  // Calls row(statement) for each row of the result.
  template <typename Row>
  void query(const char* sql, const std::vector<std::string>& texts, const Row& row) const {
    sqlite3_stmt* raw = nullptr;
    int code = sqlite3_prepare_v2(db, sql, -1, &raw, nullptr);
    const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(raw, sqlite3_finalize);
    if (code != SQLITE_OK) complain(code);
    for (size_t i = 0; i < texts.size(); ++i)
      sqlite3_bind_text(raw, int(i) + 1, texts[i].c_str(), int(texts[i].size()), SQLITE_TRANSIENT);
    while ((code = sqlite3_step(raw)) == SQLITE_ROW) row(raw);
    if (code != SQLITE_DONE) complain(code);
  }
  void run(const char* sql, const std::vector<std::string>& texts = {}) const {
    query(sql, texts, [](sqlite3_stmt*) {});
  }
  int number(const char* sql) const {
    int value = 0;
    query(sql, {}, [&](sqlite3_stmt* s) { value = sqlite3_column_int(s, 0); });
    return value;
  }

  bool empty() const { return number("SELECT count(*) FROM sqlite_master") == 0; }
  void check_format() const {
    const int application = number("PRAGMA application_id"), format = number("PRAGMA user_version");
    if (application != kApplication)
      fail(ErrorCode::kResource, "{}: this SQLite file is of another program: move it away, or set RIDGELINE_DATA_DIR",
           path.string());
    if (format != kFormat)
      fail(ErrorCode::kResource, "{}: tuned results of format {}, this version reads {}: move the file away",
           path.string(), format, kFormat);
  }

  std::vector<MeasuredRow> rows() const {
    std::vector<MeasuredRow> out;
    const auto text = [](sqlite3_stmt* s, int column) {
      const unsigned char* value = sqlite3_column_text(s, column);
      return std::string(value ? reinterpret_cast<const char*>(value) : "");
    };
    query("SELECT problem, kernel, version, tile, time_ns FROM tuned WHERE machine = ? ORDER BY problem",
          {machine_key()}, [&](sqlite3_stmt* s) {
            MeasuredRow row;
            row.key = text(s, 0);
            row.choice.kernel = text(s, 1);
            row.choice.version = sqlite3_column_int(s, 2);
            const std::string tile = text(s, 3);
            if (!tile.empty()) row.choice.tile = parse_kernel_tile(tile);
            row.choice.time_ns = sqlite3_column_double(s, 4);
            out.push_back(std::move(row));
          });
    return out;
  }
};

std::vector<MeasuredRow> read_tuned_results() {
  const auto file = tuning_file();
  std::error_code error;
  if (!file || !fs::exists(*file, error)) return {};
  const TuningDatabase::Connection connection(*file, SQLITE_OPEN_READONLY);
  if (connection.empty()) return {};  // another process is making it
  connection.check_format();
  return connection.rows();
}

TuningDatabase::TuningDatabase() {
  const auto file = tuning_file();
  if (!file)
    fail(ErrorCode::kResource,
         "there is no place for tuned results: none of RIDGELINE_DATA_DIR, XDG_DATA_HOME, HOME is set");
  path_ = *file;
  std::error_code error;
  fs::create_directories(path_.parent_path(), error);
  if (error)
    fail(ErrorCode::kResource, "{}: the folder of tuned results cannot be made: {}", path_.parent_path().string(),
         error.message());
  connection_ = std::make_unique<Connection>(path_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  connection_->run("BEGIN IMMEDIATE");  // fails here, not after an hour of measuring
  if (connection_->empty()) {
    connection_->run(fmt::format("PRAGMA application_id = {}", kApplication).c_str());
    connection_->run(fmt::format("PRAGMA user_version = {}", kFormat).c_str());
    connection_->run(kSchema);
  }
  connection_->check_format();
  connection_->run("COMMIT");
}

TuningDatabase::~TuningDatabase() = default;

void TuningDatabase::store(const MeasuredRow& row) {
  const MeasuredChoice& choice = row.choice;
  connection_->run("INSERT OR REPLACE INTO tuned VALUES (?, ?, ?, CAST(? AS INTEGER), ?, CAST(? AS REAL))",
                   {machine_key(), row.key, choice.kernel, std::to_string(choice.version), tile_words(choice.tile),
                    fmt::format("{}", choice.time_ns)});
}

bool TuningDatabase::forget(const std::string& key) {
  connection_->run("DELETE FROM tuned WHERE machine = ? AND problem = ?", {machine_key(), key});
  return sqlite3_changes(connection_->db) > 0;
}

int64_t TuningDatabase::forget_all() {
  connection_->run("DELETE FROM tuned WHERE machine = ?", {machine_key()});
  return sqlite3_changes(connection_->db);
}

std::vector<MeasuredRow> TuningDatabase::rows() const { return connection_->rows(); }

}  // namespace ridgeline
