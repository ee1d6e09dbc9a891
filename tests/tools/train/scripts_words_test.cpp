// The command lines that other launchers hand to pretrain_gpt.py, taken word by word
// (tests/fixtures/launch/*.words): ferry train and ferry launch say the same of them.
#include <sstream>

#include "tests/tools/launch/launch_files.h"

namespace {

namespace fs = std::filesystem;
using namespace ferry::test;
using testing::HasSubstr;

// A folder that has what the command lines name.
struct ScriptsWords : Launching {
  void SetUp() override {
    Launching::SetUp();
    const std::string fixtures = FERRY_FIXTURES;
    for (const char* one : {"fsx/gpt2", "fsx/llama2", "alehc/swissai-tokenizer"}) {
      fs::create_directories(path(one));
    }
    std::string tokens;
    for (int id = 0; id < 50256; ++id) {
      tokens += "\"t" + std::to_string(id) + "\": " + std::to_string(id) + ", ";
    }
    write(path("fsx/gpt2/gpt2-vocab.json"), "{" + tokens + "\"<|endoftext|>\": 50256}");
    write(path("fsx/gpt2/gpt2-merges.txt"), "#version: 0.2\n");
    fs::copy(fixtures + "/tokenizers/spm-bpe.model", path("fsx/llama2/tokenizer.model"));
    fs::copy(fixtures + "/tokenizers/hf-llama3.json",
             path("alehc/swissai-tokenizer/tokenizer.json"));
  }

  // Its words, with the folders that stand at the root of those machines in this one.
  std::string words(const std::string& name) const {
    const std::string text = read(std::string(FERRY_FIXTURES) + "/launch/" + name + ".words");
    std::ostringstream all;
    for (std::istringstream in(text); in;) {
      std::string word;
      in >> word;
      if (word == "/data/a") {
        word = std::string(FERRY_FIXTURES) + "/data/corpus_a_text_document";
      } else if (word.starts_with("/")) {
        word = path(word.substr(1));
      }
      all << word << " ";
    }
    return all.str();
  }

  Outcome train(const std::string& words) const {
    return shell("OMP_NUM_THREADS=1 " + std::string(FERRY_PROGRAM) + " train " + words +
                 " --device cpu");
  }
};

TEST_F(ScriptsWords, AreTakenAsTheyAre) {
  // Parameters of the paper's 7.5B GPT, and of Llama's shapes with the small vocabularies above.
  const std::pair<const char*, const char*> kModels[] = {
      {"aws-gpt", "model: 7465689088 parameters"},
      {"aws-llama2-7b", "model: 64"},
      {"aws-llama2-13b", "model: 12"},
      {"aws-llama2-70b", "model: 55"},
      {"swiss-ai-8b", "model: 69"},
      {"swiss-ai-70b", "model: 68"}};
  for (const auto& [name, model] : kModels) {
    const Outcome outcome = train(words(name) + "--dry-run");
    EXPECT_EQ(outcome.code, 0) << name << outcome.out;
    EXPECT_THAT(outcome.out, HasSubstr(model)) << name;
  }
}

// The eight ranks of the GPT, in half precision; smaller, and for two iterations.
TEST_F(ScriptsWords, OfTheGptTrain) {
  const Outcome outcome =
      train(words("aws-gpt") +
            "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
            "--max-position-embeddings 32 --global-batch-size 2 --train-samples 8 "
            "--lr-decay-samples 8 --lr-warmup-samples 1 --eval-iters 0 --exit-interval 2 "
            // Without it the cache goes into a folder named after the token files, in the fixtures.
            "--data-cache-path " +
            path("cache") + " ");
  EXPECT_TRUE(fs::exists(path("cache")));
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("tokenizer_type .................................. "
                                     "GPT2BPETokenizer"));
  EXPECT_THAT(outcome.out, HasSubstr(" > padded vocab (size: 50257) with 431 dummy tokens"));
  // As the guide's own log begins: the scale comes down from 2^32, and iterations are skipped.
  EXPECT_THAT(outcome.out, testing::ContainsRegex("iteration        2/       4 .* loss scale: "
                                                  "2147483648.0 .* skipped iterations:   2"));
}

// The sizes that the same guide lists, with the layout that it gives for one node.
TEST_F(ScriptsWords, OfTheGptTakeTheOtherSizesOfItsGuide) {
  struct Size {
    const char* words;
    double billions;
  };
  constexpr Size kSizes[] = {
      {"--num-attention-heads 24 --hidden-size 2304 --num-layers 24", 1.7},
      {"--num-attention-heads 32 --hidden-size 3072 --num-layers 30", 3.6},
      {"--num-attention-heads 32 --hidden-size 4096 --num-layers 36", 7.5},
      {"--num-attention-heads 48 --hidden-size 6144 --num-layers 40", 18.4},
      {"--num-attention-heads 64 --hidden-size 8192 --num-layers 48", 39.1},
      {"--num-attention-heads 80 --hidden-size 10240 --num-layers 60", 76.1},
      {"--num-attention-heads 96 --hidden-size 12288 --num-layers 80", 145.6},
      {"--num-attention-heads 128 --hidden-size 16384 --num-layers 96", 310.1}};
  const std::string layout =
      "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 1 --micro-batch-size 1 "
      "--global-batch-size 288 --seq-length 2048 --max-position-embeddings 2048 --dry-run ";
  for (const Size& size : kSizes) {
    const Outcome outcome = train(words("aws-gpt") + layout + size.words);
    EXPECT_EQ(outcome.code, 0) << outcome.out;
    const size_t at = outcome.out.find("model: ");
    ASSERT_NE(at, std::string::npos) << outcome.out;
    EXPECT_NEAR(std::stod(outcome.out.substr(at + 7)) / 1e9, size.billions, 0.06) << size.words;
  }
  // What it gives as an example besides is none: 48 heads do not divide 8192.
  const Outcome none = train(words("aws-gpt") + layout +
                             "--num-layers 64 --hidden-size 8192 --num-attention-heads 48");
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.out, HasSubstr("8192"));
}

// The words that a launcher's guide gives to create_data_mixture.py.
TEST_F(ScriptsWords, OfAMixtureMakeOne) {
  const std::string data = std::string(FERRY_FIXTURES) + "/data/corpus_";
  for (const auto& [place, corpus] :
       {std::pair{"datasets/fineweb-edu", "a"}, std::pair{"fineweb-2", "b"}}) {
    fs::create_directories(path(place));
    for (const char* ending : {".bin", ".idx"}) {
      const std::string name = std::string(corpus) + "_text_document" + ending;
      fs::copy(data + name, path(place) + "/" + name);
    }
  }
  const Outcome outcome = shell(std::string(FERRY_PROGRAM) +
                                " data mix --folders datasets/fineweb-edu fineweb-2 --weights 0.8 "
                                "0.2 --output datasets/fw-edu-fw-2-mixture");
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_TRUE(fs::is_directory(path("datasets/fw-edu-fw-2-mixture")));
}

// The job of a launch refuses nothing that the launch has taken, nor the other way round.
TEST_F(ScriptsWords, AreCheckedByALaunchAsByTheJob) {
  const std::string launch =
      std::string(FERRY_PROGRAM) +
      " launch slurm --print-words --preset aws-gpt --set folder=" + path("run") +
      " --set program.kind=ferry";
  const std::string files = " --set arguments.vocab-file=" + path("fsx/gpt2/gpt2-vocab.json");
  EXPECT_EQ(shell(launch).code, 0);          // the tokenizer is on the cluster
  EXPECT_EQ(shell(launch + files).code, 0);  // it is here
  // No tokenizer is named, on whatever machine the job runs.
  const std::string none =
      " --set arguments.vocab-file=null --set arguments.merge-file=null --set "
      "check.vocab_size=50257";
  const Outcome refused = shell(launch + none);
  EXPECT_EQ(refused.code, 2) << refused.out;
  EXPECT_THAT(refused.out, HasSubstr("--vocab-size is missing"));
  // A name of the hub is not a folder to the job.
  const Outcome hub = shell(launch + none + " --set arguments.tokenizer-type=HuggingFaceTokenizer" +
                            " --set arguments.tokenizer-model=org/model");
  EXPECT_EQ(hub.code, 2) << hub.out;
  EXPECT_THAT(hub.out, HasSubstr("--tokenizer-model org/model is not a folder on this machine"));
}

// What starts here and now is also held against the files that are here.
TEST_F(ScriptsWords, OfALaunchThatStartsAtOnceNameFilesThatAreThere) {
  const std::string launch = std::string(FERRY_PROGRAM) +
                             " launch local --preset one-machine --set arguments.mock-data=null "
                             "--set arguments.data-path=nowhere --set folder=" +
                             path("run");
  EXPECT_EQ(shell(launch).code, 0);  // the data may come before it is started
  const Outcome refused = shell(launch + " --submit");
  EXPECT_EQ(refused.code, 3) << refused.out;
  EXPECT_THAT(refused.out, HasSubstr("nowhere.idx does not exist"));
}

TEST_F(ScriptsWords, AModelWithoutATypeOfTokenizerIsRefused) {
  const Outcome outcome = train(
      "--num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 32 --mock-data "
      "--max-position-embeddings 32 --micro-batch-size 2 --train-iters 1 --lr 1e-3 --vocab-size "
      "100 --tokenizer-model alehc/swissai-tokenizer");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.out, HasSubstr("without --tokenizer-type: the default, GPT2BPETokenizer"));
}

}  // namespace
